"""PostgreSQL with the tables distributed over a Citus cluster by `session_id`.

Citus routes a statement that names one session to the node that has it. What it cannot route: a statement
that changes several tables, a function with effects in an `UPDATE`, a lock on rows of several shards. So a
write is a statement for each table, sent together (a pipeline): the client waits once for all of them. The
lock timeout is a setting of the transaction that Citus passes on to the nodes.

A pipeline cannot look at an answer before it goes on, so the first statement of a write on a remembered row
fails where the row has changed, and nothing after it is done. Of a row that is gone the foreign keys of the
other tables fail the commit.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.conf import conf
from helix_sessions.exceptions import StoreUnavailable
from helix_sessions.models import Event, Session
from helix_sessions.store.engine import flush, moves
from helix_sessions.store.engine.connection import execute, execute_all, fetch, is_between_transactions
from helix_sessions.store.engine.dialect import Statement, dialect_of
from helix_sessions.store.engine.postgres import PostgresDialect, milliseconds
from helix_sessions.store.engine.prepared_cursor import PreparedCursor
from helix_sessions.store.engine.remembered_rows import KnownRow
from helix_sessions.store.engine.tables import update_sql

if TYPE_CHECKING:
    from helix_sessions.store.engine.unit_of_work import UnitOfWork

_WAIT = "SET LOCAL citus.propagate_set_commands = 'local'; SET LOCAL lock_timeout = '{}'"
_FLUSHED_LATER = "SET LOCAL synchronous_commit = off"
ONE_CONNECTION = "SET LOCAL citus.multi_shard_modify_mode = 'sequential'"
"""Attachments are a table that every node has whole, and references to them hold foreign keys to it. Citus
wants one connection to each node in a transaction that writes both."""

_IS_KNOWN = f"{flush.guard('IS NOT DISTINCT FROM')} AND xmin = %s::xid"
_GUARD = f" AND 1 / (CASE WHEN {_IS_KNOWN} THEN 1 ELSE 0 END) = 1"
"""A condition that fails the statement, and with it the pipeline, where the row is not the one that is known.
The mark that each write leaves tells one history from another, also after a shard has moved, which changes
`xmin`; `xmin` tells of changes past the store."""
_CHANGED = "22012"  # division_by_zero

_SHARDS_ROWS = (
    "SELECT sum(result::numeric)::bigint FROM run_command_on_shards(%s,"
    " $$SELECT GREATEST(reltuples, 0) FROM pg_class WHERE oid = '%%s'::regclass$$) WHERE success"
)


class CitusDialect(PostgresDialect):
    """A write goes to the cluster at once, as a transaction of one statement for each table."""

    any_value = "%s"  # by it the node is found
    creates_in_one_statement = False
    flushed_later = ""
    searches_unlocked = True
    recurses_over_sessions = False
    takes_triggers = False

    def locking(self, select: str) -> str:
        return f"{select} FOR NO KEY UPDATE"

    def waiting(self) -> list[str]:
        return []

    def wait_for_locks(self, connection: BaseDatabaseWrapper, seconds: float) -> None:
        execute(connection, _WAIT.format(milliseconds(seconds)), [], prepare=False)

    @contextmanager
    def own_lock_timeout(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        """Citus passes a setting on to the nodes that the transaction reaches, before or after it."""
        inside = bool(connection.savepoint_ids)
        if inside:
            before = fetch(connection, "SELECT current_setting('lock_timeout')", [], prepare=False)[0][0]
        start = f"{ONE_CONNECTION}; {_WAIT.format(milliseconds(conf.LOCK_TIMEOUT))}"
        execute(connection, start, [], prepare=False)
        yield
        if inside:
            execute(connection, _WAIT.format(before), [], prepare=False)

    def hold_name(self, connection: BaseDatabaseWrapper, name: str) -> None:
        fetch(connection, "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))::text", [name])

    def insert_session(self, work: "UnitOfWork") -> None:
        """The insertion cannot ask tables of the coordinator, so a query goes with it."""
        sent = _Pipeline(work.connection)
        refusal = f"SELECT {moves.REFUSAL}", flush.refusal_params(work)
        sent.run([flush.session_insert(work), refusal])
        flush.check_insertion(work, inserted=not sent.found_none(0), refusal=sent.rows(1)[0][0])

    def flush(self, work: "UnitOfWork") -> str | None:
        flush.ask(work)
        if work.ahead:
            execute_all(work.connection, work.ahead)
        others = [*flush.insert_statements(work), *work.statements]
        update = flush.session_update(work)
        if not update:
            self._send(work.connection, others)
            return None
        [(sql, params)] = update
        written = self._send(work.connection, [*others, (f"{sql} RETURNING xmin::text", params)])
        return str(written[0][0]) if written else None

    def needs_no_lock(self, work: "UnitOfWork") -> bool:
        # without an event nothing would fail where the session is gone
        fails = Event in work.inserts or not (work.inserts or work.statements)
        return fails and super().needs_no_lock(work)

    def flush_if_unchanged(self, work: "UnitOfWork", known: KnownRow) -> str | None:
        update = update_sql(Session, tuple(work.changes), ("session_id",))
        params = [*flush.update_params(work), *flush.guard_params(self, known), known.row_version]
        statements: list[Statement] = [(text, ()) for text in self._beginning()]
        if work.question is not None:
            statements.append(work.question)
        place = len(statements)
        statements.append((f"{update}{_GUARD} RETURNING xmin::text", params))
        statements += [*flush.insert_statements(work), *work.statements, ("COMMIT", ())]
        sent = _Pipeline(work.connection)
        try:
            self._run_whole(sent, statements)
        except DatabaseError as error:
            if _state(error) == _CHANGED or sent.found_none(place):
                return None
            raise
        if work.question is not None:
            work.answer = sent.rows(place - 1)
        written = sent.rows(place)
        return str(written[0][0]) if written else None

    def fetch_locking(
        self, connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any], *, lazily: bool
    ) -> list[tuple[Any, ...]]:
        if not is_between_transactions(connection):
            return fetch(connection, sql, params)
        begin = [*self._beginning(), _FLUSHED_LATER] if lazily else self._beginning()
        sent = _Pipeline(connection)
        self._run_whole(sent, [*((text, ()) for text in begin), (sql, params), ("COMMIT", ())])
        return sent.rows(len(begin))

    def _run_whole(self, sent: "_Pipeline", statements: list[Statement]) -> None:
        """Run a transaction from its beginning to its end."""
        try:
            sent.run(statements)
        except DatabaseError as error:
            if sent.undo() and self.is_away(error):
                raise StoreUnavailable from error
            raise

    def _beginning(self) -> tuple[str, ...]:
        return ("BEGIN", *_WAIT.format(milliseconds(conf.LOCK_TIMEOUT)).split("; "))

    def _send(self, connection: BaseDatabaseWrapper, statements: list[Statement]) -> list[tuple[Any, ...]]:
        """Run statements inside a transaction; returns the rows of the last, if it has any."""
        sent = _Pipeline(connection)
        sent.run(statements)
        return sent.rows(-1) if statements else []

    def is_outcome_unknown(self, error: DatabaseError) -> bool:
        """A node that is lost while the coordinator commits is an internal error, not a lost connection."""
        is_internal = isinstance(error.__cause__, psycopg.errors.InternalError_)
        return is_internal or super().is_outcome_unknown(error)

    def estimated_rows(self, connection: BaseDatabaseWrapper, table: str) -> int | None:
        [[rows]] = fetch(connection, _SHARDS_ROWS, [table], prepare=False)
        return super().estimated_rows(connection, table) if rows is None else int(rows)

    def bytes_per_row(self, connection: BaseDatabaseWrapper, table: str) -> float | None:
        rows = self.estimated_rows(connection, table)
        [[size]] = fetch(connection, "SELECT citus_total_relation_size(%s::regclass)", [table], prepare=False)
        return float(size) / max(rows or 0, 1)


class _Pipeline:
    """Statements that are sent together, or one by one where something wraps or logs them, or a pooler is in
    between."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._raw = connection.connection
        self._cursors: list[Any] = []

    def run(self, statements: Iterable[Statement]) -> None:
        """Send the statements, then read the answers. After one that fails the others are not done."""
        if _is_watched(self._connection) or not dialect_of(self._connection).prepares(self._connection):
            for statement in statements:
                self._cursors.append(self._connection.cursor())
                self._cursors[-1].execute(*statement)
            return
        self._connection.validate_no_broken_transaction()
        with self._connection.wrap_database_errors:
            failures: list[psycopg.Error] = []
            try:
                with self._raw.pipeline():
                    try:
                        self._send(statements)
                    except psycopg.Error as error:  # raised here, the driver would log what follows from it
                        failures.append(error)
            except psycopg.Error as error:
                failures.append(error)
            if failures:
                raise failures[0]

    def _send(self, statements: Iterable[Statement]) -> None:
        for sql, params in statements:
            cursor = PreparedCursor(self._raw)
            self._cursors.append(cursor)
            cursor.execute(sql, params)

    def rows(self, place: int) -> list[tuple[Any, ...]]:
        """What a statement has returned."""
        cursor = self._cursors[place]
        return cursor.fetchall() if cursor.description else []

    def found_none(self, place: int) -> bool:
        """Whether it is known that a statement touched no row."""
        return len(self._cursors) > place and self._cursors[place].rowcount == 0

    def undo(self) -> bool:
        """End the transaction of statements of which one has failed; whether it was still open, so that
        nothing was written."""
        if self._raw.closed or self._raw.pgconn.transaction_status == _IDLE:
            return False
        self._raw.rollback()
        return True


_IDLE = int(psycopg.pq.TransactionStatus.IDLE)


def _state(error: DatabaseError) -> str | None:
    return getattr(error.__cause__, "sqlstate", None)


def _is_watched(connection: BaseDatabaseWrapper) -> bool:
    """Whether Django's own cursor has to be used, for what wraps or logs its statements."""
    return bool(connection.execute_wrappers or connection.queries_logged)
