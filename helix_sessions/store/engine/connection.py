"""The store's way to the database: statements, transactions, and driver errors in our words."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, cast

from django.db import DEFAULT_DB_ALIAS, DatabaseError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from helix_sessions.exceptions import HelixSessionsError, NotMigrated, SessionBusy, StoreUnavailable
from helix_sessions.store.engine.connection_cache import cache_of
from helix_sessions.store.engine.dialect import Dialect, Statement, dialect_of

_MAY_BE_WRITTEN = "_helix_sessions_may_be_written"

_UNKNOWN_TRANSACTION = (
    "A transaction was begun on this connection past Django; begin it with transaction.atomic()."
    " Nothing was written."
)


def _cursor(connection: BaseDatabaseWrapper, dialect: Dialect, prepare: bool) -> CursorWrapper:
    _let_go_if_broken(connection, dialect)
    # Django's own cursor can say what it ran.
    if not prepare or connection.queries_logged or not dialect.prepares(connection):
        return connection.cursor()
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    return connection.make_cursor(cast(CursorWrapper, _cached_cursor(connection, dialect)))


def _cached_cursor(connection: BaseDatabaseWrapper, dialect: Dialect) -> Any:
    """The cursor of a connection. It is made once, because that costs as much as a small query."""
    cache = cache_of(connection)
    if cache.cursor is None or getattr(cache.cursor, "closed", False):
        with connection.wrap_database_errors:
            cache.cursor = dialect.new_cursor(connection.connection)
    return cache.cursor


def fetch(
    connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any], *, prepare: bool = True
) -> list[tuple[Any, ...]]:
    """Run a query; returns its rows."""
    dialect = dialect_of(connection)
    cursor = _cursor(connection, dialect, prepare)
    bare, care = _with_precautions(connection, cursor)
    with care:
        bare.execute(sql, params)
        rows: list[tuple[Any, ...]] = bare.fetchall()
    if not prepare or (dialect.most_rows_cached is not None and len(rows) > dialect.most_rows_cached):
        cursor.close()
    return rows


def execute(connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any], *, prepare: bool = True) -> int:
    """Run a statement; returns how many rows it touched."""
    cursor = _cursor(connection, dialect_of(connection), prepare)
    cursor.execute(sql, params)
    return int(cursor.rowcount)


def execute_all(
    connection: BaseDatabaseWrapper, statements: Iterable[Statement], *, only_if_first: bool = False
) -> bool:
    """Run statements one after the other, with Django's precautions taken once for all of them.

    With `only_if_first` the others run only if the first has touched a row; returns whether they did.
    """
    cursor, care = _with_precautions(connection, _cursor(connection, dialect_of(connection), prepare=True))
    with care:
        for number, (sql, params) in enumerate(statements):
            cursor.execute(sql, params)
            if only_if_first and number == 0 and not cursor.rowcount:
                return False
    return True


def _with_precautions(connection: BaseDatabaseWrapper, cursor: Any) -> tuple[Any, Any]:
    """The driver's cursor, and what to use it in: Django's precautions, taken once for all it does. Where
    something wraps or logs statements, Django's own cursor, which takes them for each."""
    if connection.execute_wrappers or connection.queries_logged:
        return cursor, nullcontext()
    connection.validate_no_broken_transaction()
    return cursor.cursor, connection.wrap_database_errors


def let_go_if_broken(connection: BaseDatabaseWrapper) -> None:
    """Close a connection that is known to be lost, so that the next call makes another. Django does so only
    between requests, and a worker has none."""
    _let_go_if_broken(connection, dialect_of(connection))


def _let_go_if_broken(connection: BaseDatabaseWrapper, dialect: Dialect) -> None:
    if not connection.in_atomic_block:
        raw = connection.connection
        if raw is not None and dialect.is_closed(raw):
            connection.close()


def connect(connection: BaseDatabaseWrapper) -> None:
    """Ensure that there is a connection. If there is none, nothing was written: raise `StoreUnavailable`."""
    let_go_if_broken(connection)
    connection.close_if_health_check_failed()
    if connection.connection is None:
        try:
            connection.ensure_connection()
        except OperationalError as error:
            raise StoreUnavailable from error


def is_between_transactions(connection: BaseDatabaseWrapper) -> bool:
    """Whether there is a connection, and its next statement is a transaction of its own: none is open, and
    Django opens none."""
    raw = connection.connection
    if connection.in_atomic_block or not connection.autocommit or raw is None:
        return False
    return dialect_of(connection).is_idle(raw)


def is_told_of_pooler(connection: BaseDatabaseWrapper) -> bool:
    """Whether the project says that something pools connections by transaction, as Django wants it said."""
    return bool(connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"))


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
    with errors_translated(connection):
        if not connection.in_atomic_block:
            _join(connection)
        with transaction.atomic(using=using):
            try:
                yield connection
            except DatabaseError as error:
                if dialect_of(connection).is_away(error):  # before the commit
                    raise StoreUnavailable from error
                raise


def _join(connection: BaseDatabaseWrapper) -> None:
    """Refuse a transaction that Django does not know; be a part of one that the caller commits by hand."""
    if not connection.autocommit:
        dialect_of(connection).begin_by_hand(connection)
    elif not is_between_transactions(connection):
        raise HelixSessionsError(_UNKNOWN_TRANSACTION)


class errors_translated:  # noqa: N801 - a context manager, as its users see it
    """A lock that was not had becomes `SessionBusy`, what the database has no room or time for
    `StoreUnavailable`. A lost connection stays what it is: the outcome of the write is unknown."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, DatabaseError):
            return
        translated = _translated(self._connection, error)
        if translated is not None:
            raise translated from error
        if dialect_of(self._connection).is_outcome_unknown(error):
            lost = OperationalError(*error.args)
            vars(lost)[_MAY_BE_WRITTEN] = True
            raise lost from error
        vars(error)[_MAY_BE_WRITTEN] = True


def outage(connection: BaseDatabaseWrapper, error: DatabaseError) -> HelixSessionsError | None:
    """What an error that ended a call means, where it is known that nothing was written: it was not of a
    write, or was an answer to one."""
    translated = _translated(connection, error)
    away = dialect_of(connection).is_away(error)
    if translated is None and away and _MAY_BE_WRITTEN not in vars(error):
        return StoreUnavailable()
    return translated


def _translated(connection: BaseDatabaseWrapper, error: DatabaseError) -> HelixSessionsError | None:
    dialect = dialect_of(connection)
    if dialect.is_busy(error):
        return SessionBusy()
    if dialect.lacks_tables(error):
        return NotMigrated(
            f"The tables of helix_sessions in the database {connection.alias!r} are missing, or older than"
            " the code. Run: manage.py migrate"
            + ("" if connection.alias == DEFAULT_DB_ALIAS else f" --database {connection.alias}")
        )
    return StoreUnavailable() if dialect.is_exhausted(error) else None
