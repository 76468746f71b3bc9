"""PostgreSQL with the tables distributed over a Citus cluster by `session_id`.

Citus routes a statement that names one session to the node that has it. What it cannot route: a statement
that changes several tables, a function with effects in an `UPDATE`, a lock on rows of several shards. So a
write is a statement for each table, and the lock timeout is a setting of the transaction that Citus passes on
to the nodes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.conf import conf
from helix_sessions.store.engine import flush
from helix_sessions.store.engine.connection import execute, fetch
from helix_sessions.store.engine.postgres import PortablePostgresDialect, milliseconds

if TYPE_CHECKING:
    from helix_sessions.store.engine.unit_of_work import UnitOfWork

_WAIT = "SET LOCAL citus.propagate_set_commands = 'local'; SET LOCAL lock_timeout = '{}'"
ONE_CONNECTION = "SET LOCAL citus.multi_shard_modify_mode = 'sequential'"
"""Attachments are a table that every node has whole, and references to them hold foreign keys to it. Citus
wants one connection to each node in a transaction that writes both."""

_SHARDS_ROWS = (
    "SELECT sum(result::numeric)::bigint FROM run_command_on_shards(%s,"
    " $$SELECT GREATEST(reltuples, 0) FROM pg_class WHERE oid = '%%s'::regclass$$) WHERE success"
)


class CitusDialect(PortablePostgresDialect):
    """The portable way, without what a cluster refuses."""

    skips_locked_rows = False

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

    def insert_session(self, work: "UnitOfWork") -> bool:
        return execute(work.connection, *flush.session_insert(work)) == 1

    def is_outcome_unknown(self, error: DatabaseError) -> bool:
        """A node that is lost while the coordinator commits is an internal error, not a lost connection."""
        return isinstance(error.__cause__, psycopg.InternalError) and error.__cause__.sqlstate == "XX000"

    def estimated_rows(self, connection: BaseDatabaseWrapper, table: str) -> int | None:
        [[rows]] = fetch(connection, _SHARDS_ROWS, [table], prepare=False)
        return None if rows is None else int(rows)

    def bytes_per_row(self, connection: BaseDatabaseWrapper, table: str) -> float | None:
        rows = self.estimated_rows(connection, table)
        [[size]] = fetch(connection, "SELECT citus_total_relation_size(%s::regclass)", [table], prepare=False)
        return float(size) / max(rows or 0, 1)
