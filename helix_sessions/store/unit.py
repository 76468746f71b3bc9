"""The unit of work: one session row locked, what it needs collected, everything flushed once.

Every write of the store goes through here, so the ground rules live in this one place: the lock, the
version check, the version that rises by one, the gapless sequence numbers, the time that never goes back.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet
from django.utils import timezone

from helix_sessions import documents, encryption
from helix_sessions.agents import AgentSession
from helix_sessions.conf import conf
from helix_sessions.encryption import SEALED
from helix_sessions.exceptions import (
    ContentUnreadable,
    Fenced,
    HelixSessionsError,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StaleState,
)
from helix_sessions.models import Event, Message, Session
from helix_sessions.store import flush, known_rows, open_calls
from helix_sessions.store.database import (
    connect,
    errors_translated,
    execute,
    fetch,
    is_between_transactions,
    lock_timeout,
    transaction_on,
)
from helix_sessions.store.known_rows import KnownRow
from helix_sessions.store.tables import Row, insert_sql, table, update_sql
from helix_sessions.store.tombstones import present
from helix_sessions.stream.wakeups import wake_after_commit
from helix_sessions.types import PRUNED_STATUSES, TOMBSTONE, UNSET, Lease, Unset

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

_log = logging.getLogger("helix_sessions.writes")
_SAYS_WHETHER_IT_WAITS = frozenset(("status", "awaiting_client", "awaiting_children"))

_SEQ = table(Event).columns.index("seq")

T = TypeVar("T")


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
def _read_sql(vendor: str, columns: tuple[str, ...], tombstones: bool = False) -> str:
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
    rows = fetch(connection, _read_sql(connection.vendor, columns, tombstones), [session_id])
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


class Work:
    """What one call is about to write to one session."""

    def __init__(self, connection: BaseDatabaseWrapper, session: SessionRow, *, new: bool = False) -> None:
        self.connection = connection
        self.session = session
        self.now: datetime = timezone.now()
        """When this write takes place. It never goes back within a session, whatever the clock does."""
        if not new:
            self.now = max(self.now, session.updated_at)
        self.versioned = True
        """Whether this write raises the version."""
        self.new = new
        self.changes: dict[str, Any] = {}
        self.inserts: dict[type[models.Model], list[Row]] = {}
        self.replacing: set[type[models.Model]] = set()
        """The tables whose new rows take the place of others."""
        self.statements: list[tuple[str, list[Any]]] = []
        self.mark: str | None = None
        """What the row is known by as this write left it."""

    def change(self, **columns: Any) -> None:
        """Set columns of the session's row."""
        self.session.__dict__.update(columns)
        self.changes.update(columns)

    def insert(self, model: type[models.Model], /, **values: Any) -> None:
        """Add a row to a table of the session. Columns that are not given are null."""
        values["session_id"] = self.session.session_id
        rows = self.inserts.setdefault(model, [])
        rows.append(tuple(map(values.get, table(model).columns)))

    def put(self, model: type[models.Model], /, **values: Any) -> None:
        """Add a row, in place of one with the same key."""
        self.replacing.add(model)
        self.insert(model, **values)

    def update(self, model: type[models.Model], key: dict[str, Any], /, **values: Any) -> None:
        """Change one row of the session in another table."""
        keys = {"session_id": self.session.session_id, **key}
        sql = update_sql(model, tuple(values), tuple(keys))
        encode = table(model).encoder(self.connection.vendor, (*values, *keys))
        self.statements.append((sql, encode([*values.values(), *keys.values()])))

    def delete(self, model: type[models.Model], condition: str = "", params: Sequence[Any] = ()) -> None:
        """Remove rows of the session from another table; `condition` is SQL about them."""
        where = f'"session_id" = %s{" AND " + condition if condition else ""}'
        sql = f"DELETE FROM {table(model).name} WHERE {where}"  # noqa: S608
        as_text = self.connection.vendor == "postgresql"
        values = [str(value) if as_text else value for value in params]
        self.statements.append((sql, [self.session.session_id, *values]))

    def statement(self, sql: str, params: Sequence[Any]) -> None:
        """Anything else that belongs to this write."""
        self.statements.append((sql, list(params)))

    def event(
        self,
        kind: str,
        data: Any = UNSET,
        *,
        text: str | None = None,
        run_id: str | Unset | None = UNSET,
        turn_id: str | None = None,
        message_position: int | None = None,
    ) -> int:
        """Append to the log; the event's number. `data` is a small value of ours, `text` a document."""
        seq: int = self.session.head_seq + 1
        self.session.head_seq = self.changes["head_seq"] = seq
        self.insert(
            Event,
            seq=seq,
            type=kind,
            data=text if data is UNSET else documents.write(data),
            message_position=message_position,
            turn_id=turn_id,
            run_id=self.session.run_id if run_id is UNSET else run_id,
            created_at=self.now,
        )
        return seq

    def message(
        self, role: str, text: str, *, run_id: str | Unset | None = UNSET, turn_id: str | None = None
    ) -> int:
        """Append to the transcript, and to the log; the event's number."""
        position: int = self.session.message_count
        seq = self.event(f"{role}_message", run_id=run_id, turn_id=turn_id, message_position=position)
        self.insert(Message, position=position, seq=seq, role=role, content=text)
        self.session.message_count = self.changes["message_count"] = position + 1
        before = self.session.open_calls
        open_now = open_calls.after(before, role, text, position)
        if open_now != before:
            self.change(open_calls=open_now)
        return seq

    def flush(self) -> bool:
        """Write everything, in as few statements as the engine allows; whether there was anything."""
        if not self.settle():
            return False
        if self.new:
            self._insert_session()
        self.mark = flush.all_of(self)
        self.wake_readers()
        return True

    def wake_readers(self) -> None:
        """Tell those who read along, once the transaction has committed."""
        if _log.isEnabledFor(logging.DEBUG):
            self._tell_after_commit()
        if Event in self.inserts:
            wake_after_commit(self.connection, self.session.session_id, self.inserts[Event][0][_SEQ])

    def _tell_after_commit(self) -> None:
        session, kind = self.session, table(Event).columns.index("type")
        told = {
            "session_id": session.session_id,
            "run_id": session.run_id,
            "version": session.version,
            "head_seq": session.head_seq,
            "events": [row[kind] for row in self.inserts.get(Event, ())],
        }
        transaction.on_commit(
            lambda: _log.debug("wrote", extra=told), using=self.connection.alias, robust=True
        )

    def settle(self) -> bool:
        """Give the write its version and its time; whether there is anything to write."""
        if not (self.changes or self.inserts or self.statements):
            return False
        if not _SAYS_WHETHER_IT_WAITS.isdisjoint(self.changes):
            self._note_waiting()
        if self.versioned:
            self.change(version=self.session.version + (0 if self.new else 1), updated_at=self.now)
        elif "head_seq" in self.changes:
            self.change(updated_at=self.now)
        if self.changes:
            self.session.write_mark = self.changes["write_mark"] = known_rows.new_mark()
        return True

    def _note_waiting(self) -> None:
        """`waiting_since` follows from what else the row says; one that goes on waiting keeps it."""
        session = self.session
        waits = session.awaiting_client or session.awaiting_children
        waits = waits and session.status not in PRUNED_STATUSES
        if waits != (session.waiting_since is not None):
            self.change(waiting_since=self.now if waits else None)

    def _insert_session(self) -> None:
        sql = f"{insert_sql(Session, ALL_COLUMNS, 1)} ON CONFLICT DO NOTHING"
        encode = table(Session).encoder(self.connection.vendor, ALL_COLUMNS)
        params = encode([getattr(self.session, column) for column in ALL_COLUMNS])
        if self.connection.vendor == "postgresql":
            # As with the lock: how long to wait for another creation of this id is set by the statement.
            timed = "(CASE WHEN set_config('lock_timeout', %s, true) IS NOT NULL THEN %s END"
            sql = sql.replace("(%s", timed, 1)
            params.insert(0, lock_timeout())
        if execute(self.connection, sql, params) == 0:
            raise SessionExists(f"There is a session {self.session.session_id!r} already.")

    def as_known(self) -> KnownRow | None:
        """The row as this write left it, for the next one; `None` if a part of it could not be read, or
        nothing tells it from another."""
        columns = vars(self.session)
        if self.mark is None or "unreadable" in columns or columns["write_mark"] is None:
            return None
        if len(columns) == len(LIGHT_COLUMNS):  # nothing else was read or set
            return KnownRow(self.mark, columns.copy())
        return KnownRow(self.mark, {name: columns[name] for name in LIGHT_COLUMNS})


class Tree:
    """Sessions that one call writes in one transaction.

    They are locked the root first, then downwards, and those of one level by id, so that two calls never
    wait for each other in a circle.
    """

    def __init__(self, connection: BaseDatabaseWrapper, lease: Lease | None = None) -> None:
        self.connection = connection
        self._lease = lease
        self._works: dict[str, Work] = {}
        self._written: list[Work] = []

    def lock(
        self,
        session_id: str,
        columns: tuple[str, ...] = LIGHT_COLUMNS,
        owner: Any = UNSET,
        *,
        tombstones: bool = False,
    ) -> Work:
        """Lock one more session; one that is locked already is the same `Work`."""
        if session_id not in self._works:
            row = lock_row(self.connection, session_id, columns, owner, tombstones=tombstones)
            check_fence(row, self._lease)
            self._works[session_id] = Work(self.connection, row)
        return self._works[session_id]

    def lock_with_root(self, session_id: str, owner: Any = UNSET) -> tuple[Work, Work]:
        """Lock a session and before it the root of its tree, both read whole; the root, then the session.

        A session whose root is not stored is its own root.
        """
        named = read_row(self.connection, session_id, ("root_session_id",), owner).root_session_id
        root = None
        if named not in (None, session_id):
            try:
                root = self.lock(named, ALL_COLUMNS)
            except SessionNotFound:
                root = None
        work = self.lock(session_id, ALL_COLUMNS, owner)
        if work.session.root_session_id != named:
            raise SessionBusy(f"The session {session_id!r} was replaced meanwhile.")
        return root or work, work

    def flush(self) -> None:
        """Write what was collected for each session. One for which nothing was is left as it is."""
        self._written = [work for work in self._works.values() if work.flush()]
        mark = known_rows.shared_mark(self.connection) if self._written else None
        if mark is not None:
            for work in self._written:
                work.mark = mark

    def remember(self) -> None:
        """Keep the rows that were committed, for the next write of this connection."""
        if is_between_transactions(self.connection):
            for work in self._written:
                if work.mark is not None and work.session.status != TOMBSTONE:
                    known_rows.remember(self.connection, work.session.session_id, work.as_known())


@contextmanager
def write_tree(using: str, lease: Lease | None = None) -> Iterator[Tree]:
    """Let the block lock sessions and decide, flush all of them, commit. With a lease, its session is only
    written while that is the newest.

    A refusal has written nothing, so it ends the transaction without a rollback, which would make the
    driver forget its prepared statements.
    """
    refusal: HelixSessionsError | None = None
    with locking_transaction(using) as connection:
        tree = Tree(connection, lease)
        try:
            yield tree
        except HelixSessionsError as error:
            refusal = error
        else:
            tree.flush()
    if refusal is not None:
        raise refusal
    tree.remember()


@contextmanager
def write(
    using: str,
    session_id: str,
    expected_version: int | None = None,
    *,
    columns: tuple[str, ...] = LIGHT_COLUMNS,
    owner: Any = UNSET,
    tombstones: bool = False,
    lease: Lease | None = None,
) -> Iterator[Work]:
    """Lock a session, check what the caller expects, let the block decide, flush, commit."""
    with write_tree(using, lease) as tree:
        work = tree.lock(session_id, columns, owner, tombstones=tombstones)
        check_version(work, expected_version)
        yield work


def decide(
    using: str,
    session_id: str,
    decision: Callable[[Work], T],
    expected_version: int | None = None,
    *,
    owner: Any = UNSET,
    lease: Lease | None = None,
    unread: bool = False,
) -> tuple[Work, T]:
    """Make a write that is decided by a function of the row: without a lock on a row this connection
    wrote last and nobody since, otherwise as `write` does. For the hot paths.

    With `unread` a row that others wrote is looked at first, on PostgreSQL: two statements instead of
    the four of a transaction. For writes that seldom meet others of the same session.

    The decision may be made twice, so it only collects; it may read rows that never change.
    """
    connection = connections[using]
    known = known_rows.recall(connection, session_id)
    if known is None and unread:
        known = _look(connection, session_id)
    if known is not None and owner in (UNSET, known.values["owner_id"]):
        done = _decide_unlocked(connection, known, decision, expected_version, lease)
        if done is not None:
            return done
        known_rows.forget(connection, session_id)
    with write(using, session_id, expected_version, owner=owner, lease=lease) as work:
        outcome = decision(work)
    return work, outcome


def _look(connection: BaseDatabaseWrapper, session_id: str) -> KnownRow | None:
    """The row as it is, without a lock, with the mark that tells whether it still is when it is written."""
    connect(connection)
    if connection.vendor != "postgresql" or conf.PORTABLE_WRITES or not is_between_transactions(connection):
        return None
    sql = _read_sql(connection.vendor, LIGHT_COLUMNS, False).replace("SELECT ", "SELECT xmin::text, ", 1)
    rows = fetch(connection, sql, [session_id])
    if not rows:
        return None
    values = vars(SessionRow.read(session_id, LIGHT_COLUMNS, rows[0][1:]))
    if "unreadable" in values or values["write_mark"] is None:
        return None
    return KnownRow(rows[0][0], values)


def _decide_unlocked(
    connection: BaseDatabaseWrapper,
    known: KnownRow,
    decision: Callable[[Work], T],
    expected_version: int | None,
    lease: Lease | None,
) -> tuple[Work, T] | None:
    """`None` if the lock is needed: to refuse, to say that there is nothing to do, or for what is staged,
    which changes without the row."""
    work = Work(connection, SessionRow.of(known))
    if expected_version not in (None, work.session.version) or work.session.staged_count:
        return None
    try:
        check_fence(work.session, lease)
        outcome = decision(work)
    except HelixSessionsError:
        return None
    if not work.settle():
        return None
    with errors_translated():
        work.mark = flush.if_unchanged(work, known)
    if work.mark is None:
        return None
    known_rows.remember(connection, work.session.session_id, work.as_known())
    work.wake_readers()
    return work, outcome


def check_version(work: Work, expected_version: int | None) -> None:
    check_row_version(work.session, expected_version)


def check_row_version(row: SessionRow | AgentSession, expected_version: int | None) -> None:
    if expected_version is not None and expected_version != row.version:
        raise StaleState(
            expected_version=expected_version, current_version=row.version, current_status=row.status
        )


@contextmanager
def locking_transaction(using: str) -> Iterator[BaseDatabaseWrapper]:
    """A transaction, or a part of the caller's, in which rows are locked."""
    with transaction_on(using) as connection, _restored_lock_timeout(connection):
        yield connection


@contextmanager
def _restored_lock_timeout(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Inside a caller's transaction, leave the caller's lock timeout as it was."""
    if connection.vendor != "postgresql" or not connection.savepoint_ids:
        yield
        return
    before = fetch(connection, "SELECT current_setting('lock_timeout')", [])[0][0]
    yield
    execute(connection, "SELECT set_config('lock_timeout', %s, true)", [before])
