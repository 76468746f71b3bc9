"""The unit of work: one session row locked, what it needs collected, everything flushed once.

Every write of the store goes through here, so the ground rules live in this one place: the lock, the
version check, the version that rises by one, the gapless sequence numbers, the time that never goes back.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet
from django.utils import timezone

from helix_sessions import documents
from helix_sessions.conf import conf
from helix_sessions.exceptions import HelixSessionsError, SessionExists, SessionNotFound, StaleState
from helix_sessions.models import Event, Message, Session
from helix_sessions.store.database import execute, fetch, transaction_on
from helix_sessions.store.tables import Row, insert_sql, table, update_sql
from helix_sessions.stream.wakeups import wake_after_commit
from helix_sessions.types import UNSET, Unset

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

_ROWS_PER_STATEMENT = 500
_ROWS_WORTH_PREPARING = 24


class SessionRow:
    """The locked row's values by column name; documents are text."""

    def __init__(self, columns: Sequence[str], values: Sequence[Any]) -> None:
        self.__dict__.update(zip(columns, values, strict=True))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"The column {name!r} was not read.")


@cache
def _read_sql(vendor: str, columns: tuple[str, ...]) -> str:
    sessions = table(Session)
    return f'SELECT {sessions.selection(vendor, columns)} FROM {sessions.name} WHERE "session_id" = %s'  # noqa: S608


_lock_statements: dict[tuple[str, tuple[str, ...]], str] = {}


def _lock_sql(connection: BaseDatabaseWrapper, columns: tuple[str, ...]) -> str:
    """`select_for_update` as Django writes it, kept, because writing it anew costs more than running it.

    On PostgreSQL a condition that is always true sets the time the lock is waited for, in the same
    statement: the conditions are evaluated before the row is locked.
    """
    key = (connection.vendor, columns)
    if key not in _lock_statements:
        rows: QuerySet[Session] = Session.objects.using(connection.alias).select_for_update(no_key=True)
        if connection.vendor == "postgresql":
            rows = rows.extra(where=["set_config('lock_timeout', %s, true) IS NOT NULL"], params=[""])
        query = rows.filter(session_id="").values_list(*columns).query
        _lock_statements[key] = query.get_compiler(connection=connection).as_sql()[0]
    return _lock_statements[key]


def read_row(
    connection: BaseDatabaseWrapper, session_id: str, columns: tuple[str, ...] = LIGHT_COLUMNS
) -> SessionRow:
    """The session's row, without a lock."""
    rows = fetch(connection, _read_sql(connection.vendor, columns), [session_id])
    if not rows:
        raise SessionNotFound(f"There is no session {session_id!r}.")
    return SessionRow(columns, table(Session).decoder(columns)(rows[0]))


def lock_row(
    connection: BaseDatabaseWrapper, session_id: str, columns: tuple[str, ...] = LIGHT_COLUMNS
) -> SessionRow:
    """The session's row, locked until the transaction ends."""
    params = [session_id]
    if connection.vendor == "postgresql":
        params.insert(0, f"{max(1, round(conf.LOCK_TIMEOUT * 1000))}ms")
    rows = fetch(connection, _lock_sql(connection, columns), params)
    if not rows:
        raise SessionNotFound(f"There is no session {session_id!r}.")
    return SessionRow(columns, table(Session).decoder(columns)(rows[0]))


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
        self._new = new
        self._first_seq: int | None = None
        self._changes: dict[str, Any] = {}
        self._inserts: dict[type[models.Model], list[Row]] = {}
        self._statements: list[tuple[str, list[Any]]] = []

    def change(self, **columns: Any) -> None:
        """Set columns of the session's row."""
        self.session.__dict__.update(columns)
        self._changes.update(columns)

    def insert(self, model: type[models.Model], **values: Any) -> None:
        """Add a row to a table of the session. Columns that are not given are null."""
        values["session_id"] = self.session.session_id
        rows = self._inserts.setdefault(model, [])
        rows.append(tuple(map(values.get, table(model).columns)))

    def update(self, model: type[models.Model], key: dict[str, Any], **values: Any) -> None:
        """Change one row of the session in another table."""
        keys = {"session_id": self.session.session_id, **key}
        sql = update_sql(model, tuple(values), tuple(keys))
        encode = table(model).encoder(self.connection.vendor, (*values, *keys))
        self._statements.append((sql, encode([*values.values(), *keys.values()])))

    def delete(self, model: type[models.Model], condition: str = "", params: Sequence[Any] = ()) -> None:
        """Remove rows of the session from another table; `condition` is SQL about them."""
        where = f'"session_id" = %s{" AND " + condition if condition else ""}'
        sql = f"DELETE FROM {table(model).name} WHERE {where}"  # noqa: S608
        as_text = self.connection.vendor == "postgresql"
        values = [str(value) if as_text else value for value in params]
        self._statements.append((sql, [self.session.session_id, *values]))

    def statement(self, sql: str, params: Sequence[Any]) -> None:
        """Anything else that belongs to this write."""
        self._statements.append((sql, list(params)))

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
        self.change(head_seq=seq)
        if self._first_seq is None:
            self._first_seq = seq
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
        self.change(message_count=position + 1)
        return seq

    def flush(self) -> None:
        """Write everything, in as few statements as the engine allows."""
        if not (self._changes or self._inserts or self._statements):
            return
        if self.versioned:
            self.change(version=self.session.version + (0 if self._new else 1), updated_at=self.now)
        elif "head_seq" in self._changes:
            self.change(updated_at=self.now)
        if self._new:
            self._insert_session()
        elif self._changes:
            columns = tuple(self._changes)
            encode = table(Session).encoder(self.connection.vendor, columns)
            params = [*encode(list(self._changes.values())), self.session.session_id]
            self._statements.append((update_sql(Session, columns, ("session_id",)), params))
        if self.connection.vendor == "postgresql" and not conf.PORTABLE_WRITES:
            self._flush_in_one_statement()
        else:
            self._flush_table_by_table()
        if self._first_seq is not None:
            wake_after_commit(self.connection, self.session.session_id, self._first_seq)

    def _insert_session(self) -> None:
        sql = f"{insert_sql(Session, ALL_COLUMNS, 1)} ON CONFLICT DO NOTHING"
        encode = table(Session).encoder(self.connection.vendor, ALL_COLUMNS)
        params = encode([getattr(self.session, column) for column in ALL_COLUMNS])
        if execute(self.connection, sql, params) == 0:
            raise SessionExists(f"There is a session {self.session.session_id!r} already.")

    def _insertions(self) -> Iterator[tuple[str, list[Any], int]]:
        for model, rows in self._inserts.items():
            columns = table(model).columns
            encode = table(model).encoder(self.connection.vendor, columns)
            for start in range(0, len(rows), _ROWS_PER_STATEMENT):
                some = rows[start : start + _ROWS_PER_STATEMENT]
                params = [value for row in some for value in encode(row)]
                yield insert_sql(model, columns, len(some)), params, len(some)

    def _flush_table_by_table(self) -> None:
        for sql, params, rows in self._insertions():
            execute(self.connection, sql, params, prepare=rows <= _ROWS_WORTH_PREPARING)
        for sql, params in self._statements:
            execute(self.connection, sql, params)

    def _flush_in_one_statement(self) -> None:
        """PostgreSQL runs several changes in one statement: all but the last as common table expressions.

        They see the tables as before the statement, so no row may be touched by two of them, and none is:
        each table is written once, and the session's row by the last. Long lists go ahead in pieces.
        """
        parts: list[tuple[str, list[Any]]] = []
        for sql, params, rows in self._insertions():
            if rows <= _ROWS_WORTH_PREPARING:
                parts.append((sql, params))
            else:
                execute(self.connection, sql, params, prepare=False)
        parts.extend(self._statements)
        if not parts:
            return
        *first, (last, last_params) = parts
        steps = ", ".join(f"w{number} AS ({sql})" for number, (sql, _) in enumerate(first))
        params = [param for _, some in first for param in some] + last_params
        execute(self.connection, f"WITH {steps} {last}" if steps else last, params)


@contextmanager
def write(
    using: str,
    session_id: str,
    expected_version: int | None = None,
    *,
    columns: tuple[str, ...] = LIGHT_COLUMNS,
) -> Iterator[Work]:
    """Lock a session, check what the caller expects, let the block decide, flush, commit.

    A refusal has written nothing, so it ends the transaction without a rollback, which would make the
    driver forget its prepared statements.
    """
    refusal: HelixSessionsError | None = None
    with transaction_on(using) as connection, _restored_lock_timeout(connection):
        try:
            work = Work(connection, lock_row(connection, session_id, columns))
            check_version(work, expected_version)
            yield work
        except HelixSessionsError as error:
            refusal = error
        else:
            work.flush()
    if refusal is not None:
        raise refusal


def check_version(work: Work, expected_version: int | None) -> None:
    if expected_version is not None and expected_version != work.session.version:
        raise StaleState(
            expected_version=expected_version,
            current_version=work.session.version,
            current_status=work.session.status,
        )


@contextmanager
def _restored_lock_timeout(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Inside a caller's transaction, leave the caller's lock timeout as it was."""
    if connection.vendor != "postgresql" or not connection.savepoint_ids:
        yield
        return
    before = fetch(connection, "SELECT current_setting('lock_timeout')", [])[0][0]
    yield
    execute(connection, "SELECT set_config('lock_timeout', %s, true)", [before])
