"""The session's row: read, locked, and checked against what the caller expects."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import encryption
from helix_sessions.content.encryption import SEALED
from helix_sessions.exceptions import (
    ContentUnreadable,
    Fenced,
    SessionNotFound,
    StaleState,
)
from helix_sessions.models import Session
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import Dialect, dialect_of
from helix_sessions.store.engine.remembered_rows import KnownRow
from helix_sessions.store.engine.session_columns import LIGHT_COLUMNS
from helix_sessions.store.engine.tables import table
from helix_sessions.types import TOMBSTONE, UNSET, Lease
from helix_sessions.values.agents import AgentSession

GONE: Final[Any] = object()
"""As a status: tombstones, sessions that were deleted by decision. Their rows stay and count as absent. No
word asks for them, because to callers of the store they are not there."""


def present(prefix: str = "") -> str:
    """The condition that a session's row is no tombstone. `Session.objects` leaves them out by itself."""
    return f"{prefix}\"status\" <> '{TOMBSTONE}'"


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
        """A row of the database. Content that cannot be decrypted raises when it is accessed; the rest of
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

    @property
    def waits_for_retry(self) -> bool:
        """The call of the model failed for a time, and the run under way is left to the next driver."""
        return bool(self.run_id is not None and self.retry_attempt and self.lease_owner is None)

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
def read_sql(
    dialect: Dialect, columns: tuple[str, ...], tombstones: bool = False, *, locking: bool = False
) -> str:
    """The query of a session's row."""
    sessions = table(Session)
    there = "" if tombstones else f" AND {present()}"
    select = (
        f"SELECT {sessions.selection(dialect, columns)} FROM {sessions.name}"  # noqa: S608
        f' WHERE "session_id" = %s{there}'
    )
    return dialect.locking(select) if locking else select


def read_row(
    connection: BaseDatabaseWrapper,
    session_id: str,
    columns: tuple[str, ...] = LIGHT_COLUMNS,
    owner: Any = UNSET,
    *,
    tombstones: bool = False,
) -> SessionRow:
    """Read the session's row, without a lock. With an owner, a session of another owner is not found."""
    columns = _with_owner(columns, owner)
    rows = fetch(connection, read_sql(dialect_of(connection), columns, tombstones), [session_id])
    return _only_row(session_id, columns, rows, owner)


def check_owner(session_id: str, row: Any, owner: Any) -> None:
    """Another owner's session is refused in the words of one that does not exist."""
    if owner is not UNSET and row.owner_id != owner:
        raise SessionNotFound(session_id=session_id)


def check_fence(row: Any, lease: Lease | None) -> None:
    """Raise `Fenced` if the caller drives the session under a lease that was replaced or released."""
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
    dialect = dialect_of(connection)
    sql = read_sql(dialect, columns, tombstones, locking=True)
    rows = fetch(connection, sql, [session_id, *dialect.waiting()])
    return _only_row(session_id, columns, rows, owner)


def _only_row(
    session_id: str, columns: tuple[str, ...], rows: Sequence[Sequence[Any]], owner: Any
) -> SessionRow:
    if not rows:
        raise SessionNotFound(session_id=session_id)
    row = SessionRow.read(session_id, columns, rows[0])
    check_owner(session_id, row, owner)
    return row


def check_row_version(row: SessionRow | AgentSession, expected_version: int | None) -> None:
    if expected_version is not None and expected_version != row.version:
        raise StaleState(
            expected_version=expected_version, current_version=row.version, current_status=row.status
        )
