"""SQLite: one writer at a time has the whole file, so a transaction that writes is the lock of every row."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import DatabaseError, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.models import Session
from helix_sessions.store.engine import flush
from helix_sessions.store.engine.connection import execute, execute_all, fetch
from helix_sessions.store.engine.dialect import Dialect, Encoder, writes_table_by_table
from helix_sessions.store.engine.remembered_rows import KnownRow
from helix_sessions.store.engine.tables import update_sql

if TYPE_CHECKING:
    from helix_sessions.store.engine.unit_of_work import UnitOfWork

_BUSY_WORDS = ("database is locked", "table is locked")
_EXHAUSTED_WORDS = ("disk is full", "readonly database")
_AWAY_WORDS = ("unable to open database file",)


class QuestionMarkCursor(sqlite3.Cursor):
    """Turns the placeholders of a statement once; Django's own cursor does it each time."""

    def execute(self, query: str, params: Any = ()) -> "QuestionMarkCursor":
        super().execute(_with_question_marks(query), params)
        return self


@lru_cache(maxsize=512)
def _with_question_marks(sql: str) -> str:
    return sql.replace("%s", "?")


def _parameter(value: Any) -> Any:
    if isinstance(value, datetime):
        return _naive_utc(value)
    return value.isoformat() if isinstance(value, date) else value


def _naive_utc(value: datetime) -> str:
    if value.tzinfo is UTC:
        return value.isoformat(" ").removesuffix("+00:00")
    return str(value.astimezone(UTC).replace(tzinfo=None))


class SqliteDialect(Dialect):
    """A row's version is the state of the whole file as the connection sees it: how often others have changed
    it, and how many rows the connection itself has."""

    name = "sqlite"
    shares_row_version = True

    def encoder(self, field: "models.Field[Any, Any]") -> Encoder | None:
        if isinstance(field, models.DateTimeField):
            return _naive_utc
        if isinstance(field, models.DateField):
            return date.isoformat
        if isinstance(field, models.ForeignKey) and isinstance(field.target_field, models.UUIDField):
            return UUID.hex.__get__
        return None

    def parameters(self, values: Iterable[Any]) -> list[Any]:
        return [_parameter(value) for value in values]

    def rows_as_json(self, query: str, columns: Sequence[str]) -> str:
        names = ", ".join(f'q."{name}"' for name in columns)
        return f"(SELECT json_group_array(json_array({names})) FROM ({query}) q)"  # noqa: S608

    def contains(self, text: str, part: str) -> str:
        return f"instr({text}, '{part}') > 0"

    def using_index(self, name: str) -> str:
        return f" INDEXED BY {name}"

    def locking(self, select: str) -> str:
        """The transaction has the lock. How long it waited for it is an option of the connection."""
        return select

    def wait_for_readers(self, connection: BaseDatabaseWrapper, table: str) -> None:
        """The transaction has the lock, so no other writes."""

    def insert_session(self, work: "UnitOfWork") -> None:
        flush.insert_session(work, *flush.session_insert(work))

    def flush(self, work: "UnitOfWork") -> str | None:
        flush.statement_by_statement(work)
        return None

    def flush_if_unchanged(self, work: "UnitOfWork", known: KnownRow) -> str | None:
        """In a transaction that is begun and ended here: Django's costs as much as the statements in it."""
        connection = work.connection
        others, own = known.row_version.split()
        if own != _own_changes(connection):
            return None
        update = f"{update_sql(Session, tuple(work.changes), ('session_id',))} AND {_GUARD}"
        execute(connection, "BEGIN IMMEDIATE", [])
        try:
            if _row_version(connection) != known.row_version:
                return None
            flush.ask(work)
            first = update, [*flush.update_params(work), *flush.guard_params(self, known)]
            rest = [*flush.insert_statements(work), *work.statements, ("COMMIT", ())]
            if execute_all(connection, [first, *rest], only_if_first=True):
                return f"{others} {_own_changes(connection)}"
            return None
        finally:
            if connection.connection.in_transaction:
                connection.connection.rollback()

    def remembers(self, connection: BaseDatabaseWrapper) -> bool:
        """Not while queries are logged: the plain way is what is logged."""
        return not (writes_table_by_table() or connection.queries_logged)

    def shared_row_version(self, connection: BaseDatabaseWrapper) -> str | None:
        """Inside a transaction that has written what it has to write."""
        if connection.savepoint_ids or not self.remembers(connection):
            return None
        return _row_version(connection)

    def prepares(self, connection: BaseDatabaseWrapper) -> bool:
        return True

    def new_cursor(self, raw: Any) -> QuestionMarkCursor:
        cursor: QuestionMarkCursor = raw.cursor(QuestionMarkCursor)
        return cursor

    def is_idle(self, raw: Any) -> bool:
        return not raw.in_transaction

    def is_durable(self, connection: BaseDatabaseWrapper) -> bool:
        [[synchronous]] = fetch(connection, "PRAGMA synchronous", [], prepare=False)
        return bool(synchronous >= 2)

    def begin_by_hand(self, connection: BaseDatabaseWrapper) -> None:
        """SQLite takes a savepoint outside of a transaction for one, and commits it."""
        if not connection.connection.in_transaction:
            execute(connection, "BEGIN IMMEDIATE", [])

    @contextmanager
    def read_snapshot(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        # Not `atomic`, which takes the write lock.
        execute(connection, "BEGIN DEFERRED", [])
        try:
            yield
        finally:
            execute(connection, "ROLLBACK", [])

    def is_busy(self, error: DatabaseError) -> bool:
        return any(words in str(error) for words in _BUSY_WORDS)

    def is_exhausted(self, error: DatabaseError) -> bool:
        return any(words in str(error) for words in _EXHAUSTED_WORDS)

    def is_away(self, error: DatabaseError) -> bool:
        return any(words in str(error) for words in _AWAY_WORDS)

    def lacks_tables(self, error: DatabaseError) -> bool:
        return any(words in str(error) for words in ("no such table", "no such column", "has no column"))

    def answers(self, connection: BaseDatabaseWrapper) -> bool:
        return fetch(connection, "SELECT 1", [], prepare=False) == [(1,)]

    def clock(self, connection: BaseDatabaseWrapper) -> datetime:
        """The machine's, which all owners share."""
        return timezone.now()


def _row_version(connection: BaseDatabaseWrapper) -> str:
    [[others]] = fetch(connection, "PRAGMA data_version", [])
    return f"{others} {_own_changes(connection)}"


def _own_changes(connection: BaseDatabaseWrapper) -> str:
    """The half of a version that costs no statement."""
    return str(connection.connection.total_changes)


_GUARD = flush.guard("IS")
