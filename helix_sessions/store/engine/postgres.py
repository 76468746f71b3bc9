"""PostgreSQL: a write is one statement, and a row that this connection wrote last needs no lock.

Every parameter goes to the server as text without a type, so that it takes the type of the column and one
prepared statement serves numbers of any size.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import DatabaseError, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.conf import conf
from helix_sessions.store.engine import flush
from helix_sessions.store.engine.connection import (
    connect,
    execute,
    execute_all,
    fetch,
    is_between_transactions,
    is_told_of_pooler,
)
from helix_sessions.store.engine.connection_cache import cache_of
from helix_sessions.store.engine.dialect import Dialect, Encoder
from helix_sessions.store.engine.postgres_statement import WAIT, Inserted, as_json, creation, statement
from helix_sessions.store.engine.prepared_cursor import PreparedCursor
from helix_sessions.store.engine.remembered_rows import KnownRow
from helix_sessions.store.engine.session_columns import LIGHT_COLUMNS
from helix_sessions.store.engine.session_rows import SessionRow, read_sql
from helix_sessions.store.engine.tables import table

if TYPE_CHECKING:
    from helix_sessions.store.engine.unit_of_work import UnitOfWork

_BUSY_STATES = {
    "55P03",  # lock_not_available
    "40P01",  # deadlock_detected
    "40001",  # serialization_failure
}
_EXHAUSTED_STATES = (
    "53",  # insufficient_resources: disk_full, out_of_memory, too_many_connections …
    "57014",  # query_canceled: a statement_timeout, or a pg_cancel_backend
    "25006",  # read_only_sql_transaction: a standby, or a primary that was told to stop
    "58030",  # io_error
)
_ENDED_STATES = (
    "25P03",  # idle_in_transaction_session_timeout
    "25P04",  # transaction_timeout
)
"""The server ended the transaction, and the connection with it, because it took too long. It was not being
committed."""
_AWAY_STATES = (
    "08",  # connection_exception
    "53",  # insufficient_resources, said instead of a connection
    "57P",  # admin_shutdown, crash_shutdown, cannot_connect_now …
)
_IDLE = int(psycopg.pq.TransactionStatus.IDLE)

_CHANGES_AT_ONCE = 16


class PortablePostgresDialect(Dialect):
    """PostgreSQL with a statement for each table, and every row read under its lock: for servers that cannot
    change several tables in one statement."""

    name = "postgresql"
    number = "%s::bigint"
    moment = "%s::timestamptz"
    day = "%s::date"
    most_rows_cached = 200
    skips_locked_rows = True
    reads_any_tables = False
    lease_now = "statement_timestamp()"

    def lease_clock(self) -> list[Any]:
        return []

    def encoder(self, field: "models.Field[Any, Any]") -> Encoder | None:
        if isinstance(field, models.DateTimeField):
            return datetime.isoformat
        if isinstance(field, models.DateField):
            return date.isoformat
        if isinstance(field, models.IntegerField | models.BooleanField):
            return str
        if isinstance(field, models.ForeignKey) and field.name != "session":
            return str
        return None

    def parameters(self, values: Iterable[Any]) -> list[Any]:
        return [str(value) if isinstance(value, int | date) else value for value in values]

    def as_text(self, expression: str) -> str:
        return f"{expression}::text"

    def rows_as_json(self, query: str, columns: Sequence[str]) -> str:
        return as_json(query)

    def contains(self, text: str, part: str) -> str:
        return f"strpos({text}, '{part}') > 0"

    def on_primary(self, expression: str) -> str:
        return f"CASE WHEN NOT pg_is_in_recovery() THEN {expression} END"

    def locking(self, select: str) -> str:
        return f"{select} AND {WAIT} FOR NO KEY UPDATE"

    def waiting(self) -> list[Any]:
        return [milliseconds(conf.LOCK_TIMEOUT)]

    def wait_for_locks(self, connection: BaseDatabaseWrapper, seconds: float) -> None:
        execute(connection, "SELECT set_config('lock_timeout', %s, true)", [milliseconds(seconds)])

    def hold_name(self, connection: BaseDatabaseWrapper, name: str) -> None:
        sql = f"SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))::text WHERE {WAIT}"
        fetch(connection, sql, [name, *self.waiting()])

    def fetch_locking(
        self, connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any], *, lazily: bool
    ) -> list[tuple[Any, ...]]:
        return fetch(connection, sql, params)

    def wait_for_readers(self, connection: BaseDatabaseWrapper, table: str) -> None:
        self.wait_for_locks(connection, conf.LOCK_TIMEOUT)
        execute(connection, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE", [], prepare=False)

    @contextmanager
    def own_lock_timeout(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        if not connection.savepoint_ids:  # the transaction is the store's own
            yield
            return
        before = fetch(connection, "SELECT current_setting('lock_timeout')", [])[0][0]
        yield
        execute(connection, "SELECT set_config('lock_timeout', %s, true)", [before])

    @contextmanager
    def uncompiled(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        if is_between_transactions(connection) and not is_told_of_pooler(connection):
            cache = cache_of(connection)
            if cache.compiles:
                execute(connection, "SET jit = off", [], prepare=False)
                cache.compiles = False
            yield
            return
        with transaction.atomic(using=connection.alias, savepoint=False):
            [[before]] = fetch(connection, "SELECT current_setting('jit')", [])
            execute(connection, "SET LOCAL jit = off", [], prepare=False)
            yield
            execute(connection, "SELECT set_config('jit', %s, true)", [before])

    def insert_session(self, work: "UnitOfWork") -> None:
        sql, params = flush.session_insert(work)
        timed = f"(CASE WHEN {WAIT} THEN %s END"  # for another creation of the same id
        flush.insert_session(work, sql.replace("(%s", timed, 1), [*self.waiting(), *params])

    def flush(self, work: "UnitOfWork") -> str | None:
        flush.statement_by_statement(work)
        return None

    def flush_if_unchanged(self, work: "UnitOfWork", known: KnownRow) -> str | None:
        return None

    def remembers(self, connection: BaseDatabaseWrapper) -> bool:
        return False

    def prepares(self, connection: BaseDatabaseWrapper) -> bool:
        return conf.PREPARED_STATEMENTS and not is_told_of_pooler(connection)

    def new_cursor(self, raw: Any) -> PreparedCursor:
        return PreparedCursor(raw)

    def is_idle(self, raw: Any) -> bool:
        return bool(raw.pgconn.transaction_status == _IDLE)

    def is_closed(self, raw: Any) -> bool:
        return bool(raw.closed)

    def is_direct(self, connection: BaseDatabaseWrapper) -> bool:
        """Poolers that speak the protocol name a process that does not exist, for each transaction may get
        another. What only passes bytes on is not noticed; it loses its connections with the server."""
        [[process]] = fetch(connection, "SELECT pg_backend_pid()", [], prepare=False)
        return bool(process == connection.connection.info.backend_pid)

    @contextmanager
    def read_snapshot(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        sql = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        with transaction.atomic(using=connection.alias):
            execute(connection, sql, [], prepare=False)
            yield

    def is_busy(self, error: DatabaseError) -> bool:
        return getattr(error.__cause__, "sqlstate", None) in _BUSY_STATES

    def is_exhausted(self, error: DatabaseError) -> bool:
        cause = error.__cause__
        if not isinstance(cause, psycopg.Error):
            return False
        answered = cause.diag.severity_nonlocalized == "ERROR"
        state = str(cause.sqlstate)
        return state in _ENDED_STATES or (answered and state.startswith(_EXHAUSTED_STATES))

    def is_away(self, error: DatabaseError) -> bool:
        cause = error.__cause__
        if not isinstance(cause, psycopg.OperationalError):
            return _is_garbled(error)
        return (cause.sqlstate or "08").startswith(_AWAY_STATES)

    def is_outcome_unknown(self, error: DatabaseError) -> bool:
        return _is_garbled(error)

    def lacks_tables(self, error: DatabaseError) -> bool:
        return getattr(error.__cause__, "sqlstate", None) in ("42P01", "42703")

    def answers(self, connection: BaseDatabaseWrapper) -> bool:
        return fetch(connection, "SELECT 1", [], prepare=False) == [(1,)]

    def clock(self, connection: BaseDatabaseWrapper) -> datetime:
        """The server's: owners may be on machines whose clocks disagree."""
        now: datetime = fetch(connection, "SELECT clock_timestamp()", [])[0][0]
        return now

    def estimated_rows(self, connection: BaseDatabaseWrapper, table: str) -> int | None:
        sql = "SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(%s)"
        rows = fetch(connection, sql, [table], prepare=False)
        return rows[0][0] if rows and rows[0][0] >= 0 else None

    def estimated_shares(self, connection: BaseDatabaseWrapper, table: str, column: str) -> dict[str, float]:
        sql = (
            "SELECT unnest(most_common_vals::text::text[]), unnest(most_common_freqs) FROM pg_stats"
            " WHERE schemaname = ANY (current_schemas(false)) AND tablename = %s AND attname = %s"
        )
        return dict(fetch(connection, sql, [table, column], prepare=False))

    def bytes_per_row(self, connection: BaseDatabaseWrapper, table: str) -> float | None:
        sql = (
            "SELECT pg_total_relation_size(c.oid) / GREATEST(c.reltuples, 1)"
            " FROM pg_class c WHERE c.oid = to_regclass(%s)"
        )
        return float(fetch(connection, sql, [table])[0][0])

    def has_citus(self, connection: BaseDatabaseWrapper) -> bool:
        sql = "SELECT 1 FROM pg_proc WHERE proname = 'create_distributed_table'"
        return bool(fetch(connection, sql, [], prepare=False))


class PostgresDialect(PortablePostgresDialect):
    """PostgreSQL as it is at its best."""

    any_value = "(SELECT %s)"
    claims_in_one_statement = True
    creates_in_one_statement = True
    flushed_later = " AND set_config('synchronous_commit', 'off', true) IS NOT NULL"
    reads_any_tables = True

    def remembers(self, connection: BaseDatabaseWrapper) -> bool:
        return True

    def flush(self, work: "UnitOfWork") -> str | None:
        if work.ahead:
            execute_all(work.connection, work.ahead)
        others = work.statements
        if len(others) > _CHANGES_AT_ONCE:  # a statement costs more to plan than it grows
            execute_all(work.connection, others[:-_CHANGES_AT_ONCE])
            others = others[-_CHANGES_AT_ONCE:]
        inserted: list[Inserted] = []
        params: list[Any] = []
        for model, rows, values in flush.short_insertions(work):
            inserted.append((model, rows, model in work.replacing))
            params += values
        for _, some in others:
            params += some
        columns = () if work.new else tuple(work.changes)
        if columns:
            params += flush.update_params(work)
        else:
            flush.ask(work)
            if not (inserted or others):
                return None
        texts = tuple(text for text, _ in others)
        asked = None if work.question is None or not columns else work.question[0]
        sql = statement(columns, tuple(inserted), texts, guarded=False, asked=asked)
        if not columns:
            execute(work.connection, sql, params)
            return None
        return _answered(work, fetch(work.connection, sql, params + _asked_params(work)))

    def create(self, work: "UnitOfWork") -> bool:
        if work.ahead or work.question is not None or not self.needs_no_lock(work):
            return False
        _, row = flush.session_insert(work)
        inserted, others, params = self._with_the_row(work)
        asked = flush.refusal_params(work)
        sql = creation(inserted, others)
        [[refused, row_version]] = fetch(work.connection, sql, [*asked, *row, *self.waiting(), *params])
        if refused:
            return False  # nothing was written; `insert_session` says why
        flush.check_insertion(work, inserted=row_version is not None, refusal=None)
        work.row_version = row_version
        return True

    def needs_no_lock(self, work: "UnitOfWork") -> bool:
        return work.guardable and all(
            len(rows) <= flush.ROWS_WORTH_PREPARING for rows in work.inserts.values()
        )

    def flush_if_unchanged(self, work: "UnitOfWork", known: KnownRow) -> str | None:
        params = flush.update_params(work)
        params += [*flush.guard_params(self, known), known.row_version, *self.waiting()]
        inserted, others, with_the_row = self._with_the_row(work)
        asked = None if work.question is None else work.question[0]
        sql = statement(tuple(work.changes), inserted, others, guarded=True, asked=asked)
        written = fetch(work.connection, sql, params + with_the_row + _asked_params(work))
        return _answered(work, written)

    def _with_the_row(self, work: "UnitOfWork") -> tuple[tuple[Inserted, ...], tuple[str, ...], list[Any]]:
        """What is only written if the session's row is: new rows, other statements, and their parameters."""
        params: list[Any] = []
        for model, rows in work.inserts.items():
            encode = table(model).encoder(self, table(model).columns)
            for row in rows:
                params += encode(row)
        for _, some in work.statements:
            params += some
        inserted = tuple((model, len(rows), model in work.replacing) for model, rows in work.inserts.items())
        return inserted, tuple(text for text, _ in work.statements), params

    def read_unlocked(self, connection: BaseDatabaseWrapper, session_id: str) -> KnownRow | None:
        connect(connection)
        if not is_between_transactions(connection):
            return None
        rows = fetch(connection, _read_unlocked_sql(self), [session_id])
        if not rows:
            return None
        row_version, *columns = rows[0]
        values = vars(SessionRow.read(session_id, LIGHT_COLUMNS, columns))
        if "unreadable" in values or values["write_mark"] is None:
            return None
        return KnownRow(row_version, values)


def _asked_params(work: "UnitOfWork") -> list[Any]:
    return [] if work.question is None else list(work.question[1])


def _answered(work: "UnitOfWork", written: list[tuple[Any, ...]]) -> str | None:
    """The version of the row that was written, if one was; the unit of work takes the answer."""
    if not written:
        return None
    row_version, *answer = written[0]
    if answer:
        work.answer = json.loads(answer[0], parse_float=Decimal)
    return str(row_version)


def milliseconds(seconds: float) -> str:
    """A time as PostgreSQL's settings have it."""
    return f"{max(1, round(seconds * 1000))}ms"


@lru_cache(maxsize=1)
def _read_unlocked_sql(dialect: Dialect) -> str:
    return read_sql(dialect, LIGHT_COLUMNS).replace("SELECT ", "SELECT xmin::text, ", 1)


def _is_garbled(error: DatabaseError) -> bool:
    """The driver's own internal error: a pooler that loses its server may answer a statement twice."""
    return isinstance(error.__cause__, psycopg.InternalError) and error.__cause__.sqlstate is None
