"""The store's way to the database: statements, transactions, and driver errors in our words."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any, cast

import psycopg
from django.db import DatabaseError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from helix_sessions.conf import conf
from helix_sessions.exceptions import HelixSessionsError, SessionBusy, StoreUnavailable
from helix_sessions.store.engine.kept import kept

_BUSY_STATES = {
    "55P03",  # lock_not_available
    "40P01",  # deadlock_detected
    "40001",  # serialization_failure
}

_EXHAUSTED_STATES = (
    "53",  # insufficient_resources: disk_full, out_of_memory, too_many_connections …
    "57014",  # query_canceled: a statement_timeout, or somebody's pg_cancel_backend
    "25006",  # read_only_sql_transaction: a standby, or a primary that was told to stop
    "58030",  # io_error
)
_ENDED_STATES = (
    "25P03",  # idle_in_transaction_session_timeout
    "25P04",  # transaction_timeout
)
"""The server ended the transaction, and the connection with it, because it took too long."""
_EXHAUSTED_WORDS = ("disk is full", "readonly database")
"""What SQLite says of the same."""

_AWAY_STATES = (
    "08",  # connection_exception
    "53",  # insufficient_resources, said instead of a connection
    "57P",  # admin_shutdown, crash_shutdown, cannot_connect_now …
)
_AWAY_WORDS = ("unable to open database file",)
_MAY_BE_WRITTEN = "_helix_sessions_may_be_written"

_IDLE = int(psycopg.pq.TransactionStatus.IDLE)
_UNKNOWN_TRANSACTION = (
    "A transaction was begun on this connection past Django; begin it with transaction.atomic()."
    " Nothing was written."
)

_ROWS_TO_HOLD = 200
"""A kept cursor holds its last result; one with more rows is let go."""


class _PreparedCursor(psycopg.RawCursor[tuple[Any, ...]]):
    """Binds on the server and prepares what it executes; Django's own cursors do neither."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        connection = self.connection
        threshold = connection.prepare_threshold
        connection.prepare_threshold = 0  # Django's None means never, even where it is asked for
        try:
            return super().execute(_numbered(query), params, prepare=True)
        finally:
            connection.prepare_threshold = threshold


class _SqliteCursor(sqlite3.Cursor):
    """Turns the placeholders of a statement once; Django's own cursor does it each time."""

    def execute(self, query: str, params: Any = ()) -> "_SqliteCursor":
        super().execute(_with_question_marks(query), params)
        return self


@lru_cache(maxsize=512)
def _numbered(sql: str) -> bytes:
    """The statement with its placeholders as PostgreSQL numbers them."""
    first, *rest = sql.split("%s")
    return (first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))).encode()


@lru_cache(maxsize=512)
def _with_question_marks(sql: str) -> str:
    return sql.replace("%s", "?")


def _cursor(connection: BaseDatabaseWrapper, prepare: bool) -> CursorWrapper:
    let_go_if_broken(connection)
    if not prepare or connection.queries_logged:  # Django's own cursor can say what it ran
        return connection.cursor()
    unprepared = is_told_of_pooler(connection) or not conf.PREPARED_STATEMENTS
    if connection.vendor == "postgresql" and unprepared:
        return connection.cursor()
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    return connection.make_cursor(cast(CursorWrapper, _kept_cursor(connection)))


def _kept_cursor(connection: BaseDatabaseWrapper) -> _PreparedCursor | _SqliteCursor:
    """One cursor is kept for each connection: making one costs as much as a small query."""
    beside = kept(connection)
    if beside.cursor is None or getattr(beside.cursor, "closed", False):
        raw = connection.connection
        with connection.wrap_database_errors:
            beside.cursor = (
                _PreparedCursor(raw) if connection.vendor == "postgresql" else raw.cursor(_SqliteCursor)
            )
    return cast(_PreparedCursor | _SqliteCursor, beside.cursor)


def fetch(
    connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any], *, prepare: bool = True
) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    cursor = _cursor(connection, prepare)
    cursor.execute(sql, params)
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    if not prepare or (connection.vendor == "postgresql" and len(rows) > _ROWS_TO_HOLD):
        cursor.close()
    return rows


def execute(connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any], *, prepare: bool = True) -> int:
    """Run a statement; how many rows it touched."""
    cursor = _cursor(connection, prepare)
    cursor.execute(sql, params)
    return int(cursor.rowcount)


def let_go_if_broken(connection: BaseDatabaseWrapper) -> None:
    """Close a connection that is known to be lost, so that the next call makes another. Django does so only
    between requests, and a worker has none."""
    if connection.vendor == "postgresql" and not connection.in_atomic_block:
        raw = connection.connection
        if raw is not None and raw.closed:
            connection.close()


def connect(connection: BaseDatabaseWrapper) -> None:
    """Have a connection that works, as far as that is known. Without one nothing was written, whatever kept
    it from being made."""
    let_go_if_broken(connection)
    connection.close_if_health_check_failed()
    if connection.connection is None:
        try:
            connection.ensure_connection()
        except OperationalError as error:
            raise StoreUnavailable from error


def execute_all(
    connection: BaseDatabaseWrapper,
    statements: Iterable[tuple[str, Sequence[Any]]],
    *,
    only_if_first: bool = False,
) -> bool:
    """Run statements one after the other, with the care that Django takes of each taken once for all.

    With `only_if_first` the others are run only if the first has touched a row; whether they were.
    """
    cursor: Any = _cursor(connection, prepare=True)
    care: Any = nullcontext()
    if not (connection.execute_wrappers or connection.queries_logged):
        connection.validate_no_broken_transaction()
        cursor, care = cursor.cursor, connection.wrap_database_errors
    with care:
        for number, (sql, params) in enumerate(statements):
            cursor.execute(sql, params)
            if only_if_first and number == 0 and not cursor.rowcount:
                return False
    return True


def lock_timeout() -> str:
    """How long a lock is waited for, as PostgreSQL wants to hear it."""
    return f"{max(1, round(conf.LOCK_TIMEOUT * 1000))}ms"


def is_between_transactions(connection: BaseDatabaseWrapper) -> bool:
    """Whether there is a connection, and its next statement is a transaction of its own: nobody has begun
    one, and Django begins none."""
    raw = connection.connection
    if connection.in_atomic_block or not connection.autocommit or raw is None:
        return False
    if connection.vendor == "postgresql":
        return bool(raw.pgconn.transaction_status == _IDLE)
    return not getattr(raw, "in_transaction", False)


def _join(connection: BaseDatabaseWrapper) -> None:
    """Where the caller commits by hand, let there be a transaction for `atomic` to be a part of: SQLite
    takes a savepoint outside of one for one, and commits it. One that Django does not know is refused."""
    if connection.autocommit and not is_between_transactions(connection):
        raise HelixSessionsError(_UNKNOWN_TRANSACTION)
    by_hand = connection.vendor == "sqlite" and not connection.autocommit
    if by_hand and not connection.connection.in_transaction:
        execute(connection, "BEGIN IMMEDIATE", [])


def is_told_of_pooler(connection: BaseDatabaseWrapper) -> bool:
    """Whether the project says that something pools connections by transaction, as Django wants it said."""
    return bool(connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"))


def has_proxy(connection: BaseDatabaseWrapper) -> bool:
    """Whether PostgreSQL's process that answers is not the one this connection was told of in the beginning.

    Poolers that speak the protocol name a process that does not exist, for each transaction may get another.
    What only passes bytes on is not noticed; it loses its connections with the server.
    """
    [[process]] = fetch(connection, "SELECT pg_backend_pid()", [], prepare=False)
    return bool(process != connection.connection.info.backend_pid)


def after_commit(connection: BaseDatabaseWrapper, act: Callable[[], Any], *, robust: bool = False) -> None:
    """Call this once the transaction around it has committed; without one, now. Where the caller commits by
    hand, Django takes it only inside a block."""
    by_hand = not connection.in_atomic_block and not connection.get_autocommit()
    with transaction.atomic(using=connection.alias) if by_hand else nullcontext():
        connection.on_commit(act, robust=robust)


@contextmanager
def transaction_on(using: str) -> Iterator[BaseDatabaseWrapper]:
    """One transaction, or a part of the caller's."""
    connection = connections[using]
    connect(connection)
    with errors_translated():
        if not connection.in_atomic_block:
            _join(connection)
        with transaction.atomic(using=using):
            try:
                yield connection
            except DatabaseError as error:
                if is_away(error):  # before the commit
                    raise StoreUnavailable from error
                raise


@contextmanager
def errors_translated() -> Iterator[None]:
    """A lock that was not had becomes `SessionBusy`, what the database has no room or time for
    `StoreUnavailable`. A connection that is lost stays what it is: nobody knows what became of the write."""
    try:
        yield
    except DatabaseError as error:
        known = _in_our_words(error)
        if known is None:
            vars(error)[_MAY_BE_WRITTEN] = True
            raise
        raise known from error


def outage(error: DatabaseError) -> HelixSessionsError | None:
    """What an error that ended a call means, where it is known that nothing was written: it was not of a
    write, or was an answer to one."""
    known = _in_our_words(error)
    if known is None and is_away(error) and _MAY_BE_WRITTEN not in vars(error):
        return StoreUnavailable()
    return known


def _in_our_words(error: DatabaseError) -> HelixSessionsError | None:
    if is_busy(error):
        return SessionBusy()
    return StoreUnavailable() if is_exhausted(error) else None


def is_away(error: DatabaseError) -> bool:
    """Whether there was no database to answer: no connection, or one that was lost."""
    cause = error.__cause__
    if isinstance(cause, psycopg.Error):
        state = cause.sqlstate
        return isinstance(cause, psycopg.OperationalError) and (state or "08").startswith(_AWAY_STATES)
    return any(words in str(error) for words in _AWAY_WORDS)


def is_exhausted(error: DatabaseError) -> bool:
    """Whether the database could not, and said so in answer to a statement, so that the write is undone.

    What is said of a connection does not count: that of a commit may have been lost before it. Only a
    transaction that was ended by its time was not being committed.
    """
    cause = error.__cause__
    if isinstance(cause, psycopg.Error):
        answered = cause.diag.severity_nonlocalized == "ERROR"
        state = str(cause.sqlstate)
        return state in _ENDED_STATES or (answered and state.startswith(_EXHAUSTED_STATES))
    return any(words in str(error) for words in _EXHAUSTED_WORDS)


def is_busy(error: DatabaseError) -> bool:
    """Whether somebody else's lock, and nothing of ours, stood in the way."""
    state = getattr(error.__cause__, "sqlstate", None)
    return state in _BUSY_STATES or "database is locked" in str(error) or "table is locked" in str(error)
