"""The session's row: read, locked, and checked against what the caller expects."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from helix_sessions.content import encryption
from helix_sessions.content.encryption import SEALED
from helix_sessions.exceptions import (
    ContentUnreadable,
    Fenced,
    SessionNotFound,
    StaleState,
)
from helix_sessions.models import Session
from helix_sessions.store.engine.connection import (
    fetch,
    lock_timeout,
)
from helix_sessions.store.engine.remembered_rows import KnownRow
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.tombstones import present
from helix_sessions.types import UNSET, Lease
from helix_sessions.values.agents import AgentSession

DOCUMENT_COLUMNS = (
    "output",
    "interrupt_context",
    "pending_client_tool_calls",
    "suspended_awaiting_children",
    "suspension_context",
    "completed_client_tool_calls",
    "client_tool_call_ownership",
    "tracing_context",
    "location",
    "workspace_ref",
)
"""Columns that may be large. A write reads them only if it says so."""


UNREAD_COLUMNS = ("status_since", "checkpointed_at", "checkpoint_source")
"""Columns that a write may set but never looks at."""


ALL_COLUMNS = table(Session).columns


LIGHT_COLUMNS = tuple(name for name in ALL_COLUMNS if name not in (*DOCUMENT_COLUMNS, *UNREAD_COLUMNS))


class SessionRow:
    """The locked row's values by column name; documents are text."""

    head_seq: int
    message_count: int
    write_mark: int | None

    def __init__(self, columns: Iterable[str], values: Iterable[Any]) -> None:
        self.__dict__.update(zip(columns, values, strict=True))

    @classmethod
    def of(cls, known: KnownRow) -> "SessionRow":
        """A remembered row, to be changed without changing the memory."""
        row = cls((), ())
        row.__dict__.update(known.values)
        return row

    @classmethod
    def read(cls, session_id: str, columns: tuple[str, ...], values: Sequence[Any]) -> "SessionRow":
        """A row of the database. Content that cannot be opened says so to who asks for it; the rest of
        the row is there."""
        sessions = table(Session)
        row = cls(columns, sessions.decoder(columns)(values))
        content = sessions.content_of(columns, key_known=True)
        known = row.__dict__
        if content is not None:
            for _, name in content.texts:
                text = known[name]
                if text is not None and text.startswith(SEALED):
                    row._open(session_id, name)
            if content.digests:
                known["state_digest"] = encryption.unveil(session_id, known["state_digest"])
        return row

    def _open(self, session_id: str, name: str) -> None:
        text = self.__dict__.pop(name)
        try:
            self.__dict__[name] = table(Session).open_text(name, text, session_id)
        except ContentUnreadable as error:
            self.__dict__.setdefault("unreadable", {})[name] = error

    def __getattr__(self, name: str) -> Any:
        if name in (unreadable := self.__dict__.get("unreadable", ())):
            raise unreadable[name]
        raise AttributeError(f"The column {name!r} was not read.")


@cache
def read_sql(vendor: str, columns: tuple[str, ...], tombstones: bool = False) -> str:
    sessions = table(Session)
    there = "" if tombstones else f" AND {present()}"
    return (
        f"SELECT {sessions.selection(vendor, columns)} FROM {sessions.name}"  # noqa: S608
        f' WHERE "session_id" = %s{there}'
    )


_lock_statements: dict[tuple[str, tuple[str, ...], bool], str] = {}


def _lock_sql(connection: BaseDatabaseWrapper, columns: tuple[str, ...], tombstones: bool) -> str:
    """`select_for_update` as Django writes it, kept, because writing it anew costs more than running it.

    On PostgreSQL a condition that is always true sets the time the lock is waited for, in the same
    statement: the conditions are evaluated before the row is locked.
    """
    key = (connection.vendor, columns, tombstones)
    if key not in _lock_statements:
        sessions = Session.with_tombstones.using(connection.alias)
        rows: QuerySet[Session] = sessions.select_for_update(no_key=True)
        if connection.vendor == "postgresql":
            rows = rows.extra(where=["set_config('lock_timeout', %s, true) IS NOT NULL"], params=[""])
        rows = rows.filter(session_id="")
        if not tombstones:
            rows = rows.extra(where=[present()])  # noqa: S610 - no value of anybody's
        query = rows.values_list(*columns).query
        _lock_statements[key] = query.get_compiler(connection=connection).as_sql()[0]
    return _lock_statements[key]


def read_row(
    connection: BaseDatabaseWrapper,
    session_id: str,
    columns: tuple[str, ...] = LIGHT_COLUMNS,
    owner: Any = UNSET,
    *,
    tombstones: bool = False,
) -> SessionRow:
    """The session's row, without a lock. With an owner, anybody else's session is not there."""
    columns = _with_owner(columns, owner)
    rows = fetch(connection, read_sql(connection.vendor, columns, tombstones), [session_id])
    return _only_row(session_id, columns, rows, owner)


def check_owner(session_id: str, row: Any, owner: Any) -> None:
    """Another owner's session is refused in the words of one that does not exist."""
    if owner is not UNSET and row.owner_id != owner:
        raise SessionNotFound(f"There is no session {session_id!r}.")


def check_fence(row: Any, lease: Lease | None) -> None:
    """Refuse whoever drives the session under a lease that is not its newest, or was given back."""
    if lease is None or lease.session_id != row.session_id:
        return
    if (lease.fence, lease.owner) != (row.fence, row.lease_owner):
        raise Fenced(f"The lease {lease.fence} of {lease.owner!r} on {row.session_id!r} is over.")
    if lease.token not in (None, row.lease_token):
        raise Fenced(f"The lease {lease.fence} on {row.session_id!r} is another one of {lease.owner!r}.")


def _with_owner(columns: tuple[str, ...], owner: Any) -> tuple[str, ...]:
    return columns if owner is UNSET or "owner_id" in columns else (*columns, "owner_id")


def lock_row(
    connection: BaseDatabaseWrapper,
    session_id: str,
    columns: tuple[str, ...] = LIGHT_COLUMNS,
    owner: Any = UNSET,
    *,
    tombstones: bool = False,
) -> SessionRow:
    """The session's row, locked until the transaction ends. With an owner, as `read_row` does."""
    columns = _with_owner(columns, owner)
    params = [session_id]
    if connection.vendor == "postgresql":
        params.insert(0, lock_timeout())
    rows = fetch(connection, _lock_sql(connection, columns, tombstones), params)
    return _only_row(session_id, columns, rows, owner)


def _only_row(
    session_id: str, columns: tuple[str, ...], rows: Sequence[Sequence[Any]], owner: Any
) -> SessionRow:
    if not rows:
        raise SessionNotFound(f"There is no session {session_id!r}.")
    row = SessionRow.read(session_id, columns, rows[0])
    check_owner(session_id, row, owner)
    return row


def check_row_version(row: SessionRow | AgentSession, expected_version: int | None) -> None:
    if expected_version is not None and expected_version != row.version:
        raise StaleState(
            expected_version=expected_version, current_version=row.version, current_status=row.status
        )
