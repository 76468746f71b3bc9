"""Taking a session to drive: the next that wants to run, or a named one.

On PostgreSQL it is one statement, which leaves out what others are taking at this moment; elsewhere it is one
transaction. The row is returned whole, and remembered, so that the owner's next write needs no lock.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.models import Session
from helix_sessions.store.engine import remembered_rows
from helix_sessions.store.engine.connection import (
    connect,
    errors_translated,
    fetch,
    is_between_transactions,
)
from helix_sessions.store.engine.dialect import Dialect, dialect_of
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.session_rows import SessionRow, present
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.transactions import write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.types import UNSET

NAMED, HAS_WORK = "named", "has work"
"""How a session that is named is taken: in any case, or only if there is something to do for a driver."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which session, for whom, how long."""

    owner: str
    token: str
    ttl: timedelta
    session_id: str | None = None
    how: str = NAMED
    agent_types: tuple[str, ...] | None = None
    session_owner: Any = UNSET
    requested: bool = False
    """The taking is a request for a run as well."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A session that was taken, and who had it before."""

    row: SessionRow
    owner_before: str | None


def claim(using: str, wanted: Wanted) -> Claimed | None:
    """Take a session, or say that there is none to take."""
    connection = connections[using]
    connect(connection)
    if dialect_of(connection).claims_in_one_statement:
        return _in_one_statement(connection, wanted)
    return _in_one_transaction(using, wanted)


def _in_one_statement(connection: BaseDatabaseWrapper, wanted: Wanted) -> Claimed | None:
    mark = remembered_rows.new_mark()
    sql, params = _selection(connection, wanted, "statement_timestamp()")
    taken = [wanted.owner, wanted.token, wanted.ttl, wanted.ttl, str(mark)]
    with errors_translated(connection):
        statement = _claim_sql(dialect_of(connection), sql, wanted.requested)
        rows = fetch(connection, statement, [*params, *map(_text, taken)])
    if not rows:
        return None
    xmin, before, *values = rows[0]
    session_id = values[ALL_COLUMNS.index("session_id")]
    row = SessionRow.read(session_id, ALL_COLUMNS, values)
    if is_between_transactions(connection):
        work = UnitOfWork(connection, row)
        work.row_version = xmin
        remembered_rows.remember(connection, session_id, work.as_known())
    return Claimed(row, before)


def _in_one_transaction(using: str, wanted: Wanted) -> Claimed | None:
    connection = connections[using]
    if not _candidates(connection, wanted):  # without a lock that others would wait for
        return None
    with write_tree(using) as tree:
        found = _candidates(tree.connection, wanted)
        if not found:
            return None
        [session_id, before] = found[0]
        work = tree.lock(session_id, ALL_COLUMNS)
        work.versioned = False
        until = timezone.now() + wanted.ttl
        work.change(
            fence=work.session.fence + 1,
            lease_owner=wanted.owner,
            lease_token=wanted.token,
            lease_expires_at=until,
            runnable_at=until,
            attempts=work.session.attempts + 1,
        )
        if wanted.requested:
            work.change(run_requested=True)
    return Claimed(work.session, before)


def _candidates(connection: BaseDatabaseWrapper, wanted: Wanted) -> list[tuple[Any, ...]]:
    now = timezone.now()
    sql, params = _selection(connection, wanted, "%s", now)
    return fetch(connection, sql, params)


@cache
def _claim_sql(dialect: Dialect, selection: str, requested: bool) -> str:
    sessions = table(Session)
    asks = ', "run_requested" = true' if requested else ""
    return (
        f'WITH next AS ({selection}) UPDATE {sessions.name} s SET "fence" = s."fence" + 1,'  # noqa: S608
        ' "lease_owner" = %s, "lease_token" = %s, "lease_expires_at" = statement_timestamp() + %s::interval,'
        ' "runnable_at" = statement_timestamp() + %s::interval, "attempts" = s."attempts" + 1,'
        f' "write_mark" = %s{asks} FROM next WHERE s."session_id" = next."session_id"'
        f' RETURNING s.xmin::text, next."lease_owner", {sessions.selection(dialect, ALL_COLUMNS, "s.")}'
    )


def _selection(
    connection: BaseDatabaseWrapper, wanted: Wanted, clock: str, now: datetime | None = None
) -> tuple[str, list[Any]]:
    """The session to take and who has its lease, as a query and its parameters."""
    if wanted.session_id is not None:
        return _selection_by_name(connection, wanted, clock, now)
    types = () if wanted.agent_types is None else wanted.agent_types
    owned = wanted.session_owner is not UNSET
    dialect = dialect_of(connection)
    owner = [] if not owned else [_key(dialect, wanted.session_owner)]
    if dialect.skips_locked_rows:
        return _next_sql(len(types) if wanted.agent_types is not None else None, owned), [*types, *owner]
    [at] = dialect.parameters([now])
    of_types = "" if wanted.agent_types is None else f' AND "agent_type" IN ({_marks(len(types))})'
    sql = (
        f'SELECT "session_id", "lease_owner" FROM {table(Session).name} WHERE "runnable_at" <= %s'  # noqa: S608
        f" AND {_free('%s')}{' AND owner_id = %s' if owned else ''}{of_types}"
        ' ORDER BY "runnable_at", "session_id" LIMIT 1'
    )
    return sql, [at, at, *owner, *types]


def _selection_by_name(
    connection: BaseDatabaseWrapper, wanted: Wanted, clock: str, now: datetime | None
) -> tuple[str, list[Any]]:
    dialect = dialect_of(connection)
    at = [] if now is None else dialect.parameters([now])
    owned = wanted.session_owner is not UNSET
    params: list[Any] = [wanted.session_id, *at]
    conditions = ['"session_id" = %s', present(), _free(clock)]
    if owned:
        conditions.append('"owner_id" = %s')
        params.append(_key(dialect, wanted.session_owner))
    if wanted.how == HAS_WORK:
        conditions.append(_HAS_WORK.format(clock=clock))
        params += at
    where = " AND ".join(conditions)
    sql = f'SELECT "session_id", "lease_owner" FROM {table(Session).name} WHERE {where}'  # noqa: S608
    return dialect.locking(sql), [*params, *dialect.waiting()]


_HAS_WORK = (
    '("runnable_at" <= {clock}'
    ' OR ("run_id" IS NOT NULL AND ("retry_attempt" = 0 OR "lease_owner" IS NOT NULL))'
    ' OR ("run_id" IS NULL AND "pending_inputs" > 0 AND NOT "awaiting_client"'
    ' AND NOT "awaiting_children" AND "status" <> \'paused\'))'
)


def _free(clock: str) -> str:
    return f'("lease_owner" IS NULL OR "lease_expires_at" <= {clock})'


@cache
def _next_sql(types: int | None, owned: bool) -> str:
    """One probe of the index for each agent type; the one that waits longest of what these find."""
    sessions = table(Session).name
    if types is None:  # those that there are, each found by one probe
        kinds = (
            'WITH RECURSIVE kinds (agent_type) AS ((SELECT "agent_type"'  # noqa: S608
            f' FROM {sessions} WHERE "runnable_at" IS NOT NULL ORDER BY "agent_type" LIMIT 1)'
            ' UNION ALL SELECT (SELECT n."agent_type"'
            f' FROM {sessions} n WHERE n."runnable_at" IS NOT NULL AND n."agent_type" > kinds.agent_type'
            ' ORDER BY n."agent_type" LIMIT 1) FROM kinds WHERE kinds.agent_type IS NOT NULL)'
            " SELECT agent_type FROM kinds WHERE agent_type IS NOT NULL"
        )
    else:
        listed = ", ".join(["(%s::text)"] * types)
        kinds = f"SELECT * FROM (VALUES {listed}) AS listed (agent_type)"  # noqa: S608
    return (
        f'SELECT found."session_id", found."lease_owner" FROM ({kinds}) AS of CROSS JOIN LATERAL ('  # noqa: S608
        f'SELECT "session_id", "lease_owner", "runnable_at" FROM {sessions}'
        ' WHERE "agent_type" = of.agent_type AND "runnable_at" <= statement_timestamp()'
        f" AND {_free('statement_timestamp()')}{' AND owner_id = %s' if owned else ''}"
        ' ORDER BY "runnable_at", "session_id" LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS found'
        ' ORDER BY found."runnable_at", found."session_id" LIMIT 1'
    )


def _key(dialect: Dialect, owner: Any) -> Any:
    return table(Session).encoder(dialect, ("owner_id",))([owner])[0]


def _marks(count: int) -> str:
    return ", ".join(["%s"] * count) or "NULL"


def _text(value: Any) -> str:
    return f"{value.total_seconds()} seconds" if isinstance(value, timedelta) else str(value)


def types_of(agent_types: Collection[str] | None) -> tuple[str, ...] | None:
    """Agent types in one order, so that one statement serves however they are given."""
    return None if agent_types is None else tuple(sorted(set(agent_types)))
