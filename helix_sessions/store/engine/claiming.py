"""Taking a session to drive: the next that wants to run, or a named one.

On PostgreSQL it is one statement, which leaves out what others are taking at this moment; elsewhere, and
where `CONCURRENCY` bounds what runs at once, it is one transaction. The row is returned whole, and
remembered, so that the owner's next write needs no lock.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.models import Session
from helix_sessions.store.engine import remembered_rows, shares, turns
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
from helix_sessions.store.engine.transactions import locking_transaction, write_tree
from helix_sessions.store.engine.turns import free
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.types import UNSET
from helix_sessions.values.shares import Bounds

NAMED, HAS_WORK, DUE = "named", "has work", "due"
"""How a session that is named is taken: in any case, only if there is something to do for a driver, or only
if it is runnable."""


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
    """The taking is a request for a run as well, unless it takes up one that waits for its next attempt."""
    bounded: bool = True
    """Whether `CONCURRENCY` is asked. A drive inside another would wait for itself."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A session that was taken, and who had it before."""

    row: SessionRow
    owner_before: str | None


class NoShare(Exception):
    """As many sessions run at once as may; the one that is named has to wait."""


class _TakenMeanwhile(Exception):
    """Another took the session between the look and the lock."""


_ATTEMPTS = 20
"""How often a claim is tried that others got ahead of. Each time fewer owners have a share left."""

_turns: dict[tuple[Any, ...], str] = {}
"""Whose turn it was last in this process, by where and for what it looked. A new process begins anywhere."""


def claim(using: str, wanted: Wanted) -> Claimed | None:
    """Take a session, or say that there is none to take; `NoShare` if one that is named has to wait."""
    connection = connections[using]
    connect(connection)
    bounds = shares.bounds() if wanted.bounded else None
    in_one = dialect_of(connection).claims_in_one_statement
    if bounds is None and in_one:
        return _in_one_statement(connection, wanted)
    for _ in range(_ATTEMPTS):
        try:
            if bounds is not None and in_one:
                return _in_one_statement_within(using, wanted, bounds)
            return _in_one_transaction(using, wanted, bounds)
        except _TakenMeanwhile:
            continue
        except NoShare:
            if wanted.session_id is not None:
                raise
    return None


def _in_one_statement(connection: BaseDatabaseWrapper, wanted: Wanted) -> Claimed | None:
    taken = _take(connection, wanted, None)
    if taken is not None and is_between_transactions(connection):
        remembered_rows.remember(connection, taken.claimed.row.session_id, taken.work.as_known())
    return None if taken is None else taken.claimed


def _in_one_statement_within(using: str, wanted: Wanted, bounds: Bounds) -> Claimed | None:
    """A claim that is undone if another got the last share meanwhile."""
    with locking_transaction(using) as connection:
        taken = _take(connection, wanted, bounds)
        if taken is not None and not shares.has_room(connection, taken.claimed.row, taken=True):
            raise NoShare
    if taken is not None and is_between_transactions(connection):
        remembered_rows.remember(connection, taken.claimed.row.session_id, taken.work.as_known())
    return None if taken is None else taken.claimed


class _Taken(NamedTuple):
    claimed: Claimed
    work: UnitOfWork


def _take(connection: BaseDatabaseWrapper, wanted: Wanted, bounds: Bounds | None) -> _Taken | None:
    mark = remembered_rows.new_mark()
    dialect = dialect_of(connection)
    lazily = not wanted.requested and is_between_transactions(connection)
    taken = [_text(value) for value in (wanted.owner, wanted.token, wanted.ttl, wanted.ttl, mark)]
    while True:
        with errors_translated(connection):
            if wanted.session_id is not None:
                sql, params = _selection_by_name(connection, wanted)
                sql = _claim_sql(dialect, sql, wanted.requested, lazily=lazily)
                rows = fetch(connection, sql, [*params, *taken])
            else:
                types, owned = wanted.agent_types, wanted.session_owner is not UNSET
                sql = turns.selection(dialect, None if types is None else len(types), bounds, owned=owned)
                params = turns.parameters(timezone.now(), _turn(wanted, connection.alias), types, bounds)
                next_sql = _claim_next_sql(dialect, sql, lazily=lazily)
                with dialect.uncompiled(connection):
                    rows = fetch(connection, next_sql, [*params, *taken])
        if not rows:
            return None
        late, turn, xmin, before, *values = rows[0]
        if xmin is None and late:  # they queue from now on
            continue
        if xmin is None:
            return None
        if wanted.session_id is None:
            _turns[_place(connection.alias, wanted)] = turn
        session_id = values[ALL_COLUMNS.index("session_id")]
        work = UnitOfWork(connection, SessionRow.read(session_id, ALL_COLUMNS, values))
        work.row_version = xmin
        return _Taken(Claimed(work.session, before), work)


def _in_one_transaction(using: str, wanted: Wanted, bounds: Bounds | None = None) -> Claimed | None:
    connection = connections[using]
    if not _is_there(connection, wanted):  # without a lock that others would wait for
        return None
    found = None
    if wanted.session_id is None and dialect_of(connection).searches_unlocked:
        found = _candidate(connection, wanted, bounds)
        if found is None:
            return None
    with write_tree(using) as tree:
        found = found or _candidate(tree.connection, wanted, bounds)
        if found is None:
            return None
        session_id, before, turn = found
        work = tree.lock(session_id, ALL_COLUMNS)
        if wanted.session_id is None and not _is_still_free(work.session, before):
            raise _TakenMeanwhile
        if bounds is not None and not shares.has_room(tree.connection, work.session, taken=False):
            raise NoShare
        work.versioned = False
        if wanted.requested and not work.session.waits_for_retry:
            work.change(run_requested=True)
        until = dialect_of(tree.connection).clock(tree.connection) + wanted.ttl
        work.change(
            fence=work.session.fence + 1,
            lease_owner=wanted.owner,
            lease_token=wanted.token,
            lease_expires_at=until,
            runnable_at=until,
            deferred=True,
            attempts=work.session.attempts + 1,
        )
    if wanted.session_id is None:
        _turns[_place(using, wanted)] = turn
    return Claimed(work.session, before)


def _is_still_free(row: SessionRow, owner_before: str | None) -> bool:
    """Whether a session that was found without its lock is as it was found, now that it is locked."""
    due = row.runnable_at is not None and row.runnable_at <= timezone.now()
    return due and row.lease_owner == owner_before


def _candidate(
    connection: BaseDatabaseWrapper, wanted: Wanted, bounds: Bounds | None
) -> tuple[str, str | None, str] | None:
    """The session to take, who has its lease, and whose turn it is."""
    if wanted.session_id is None:
        owned = wanted.session_owner is not UNSET
        now, turn = timezone.now(), _turn(wanted, connection.alias)
        return turns.step_by_step(connection, now, turn, wanted.agent_types, bounds, owned=owned)
    rows = fetch(connection, *_selection_by_name(connection, wanted))
    return (rows[0][0], rows[0][1], "") if rows else None


def _is_there(connection: BaseDatabaseWrapper, wanted: Wanted) -> bool:
    """Whether there may be a session to take."""
    if wanted.session_id is not None:
        return bool(fetch(connection, *_selection_by_name(connection, wanted, locking=False)))
    dialect = dialect_of(connection)
    types, owned = wanted.agent_types, wanted.session_owner is not UNSET
    of_types = "" if types is None else f' AND "agent_type" IN ({_marks(len(types))})'
    sql = (
        f'SELECT 1 FROM {table(Session).name} WHERE "runnable_at" <= {dialect.moment}'  # noqa: S608
        f" AND {free(dialect.lease_now)}{' AND owner_id = %s' if owned else ''}{of_types} LIMIT 1"
    )
    owner = [_key(dialect, wanted.session_owner)] if owned else []
    params = [*dialect.parameters([timezone.now()]), *dialect.lease_clock(), *owner, *(types or ())]
    return bool(fetch(connection, sql, params))


def _turn(wanted: Wanted, alias: str) -> str:
    """Whose turn it was last; for a store of one owner, whose it is."""
    if wanted.session_owner is not UNSET:
        return str(_key(dialect_of(connections[alias]), wanted.session_owner))
    place = _place(alias, wanted)
    if place not in _turns:
        _turns[place] = str(int.from_bytes(os.urandom(4), "big"))
    return _turns[place]


def _place(alias: str, wanted: Wanted) -> tuple[Any, ...]:
    return alias, wanted.agent_types


_TAKEN = (
    '"fence" = s."fence" + 1, "lease_owner" = %s, "lease_token" = %s,'
    ' "lease_expires_at" = statement_timestamp() + %s::interval,'
    ' "runnable_at" = statement_timestamp() + %s::interval, "deferred" = true,'
    ' "attempts" = s."attempts" + 1, "write_mark" = %s'
)


_FLUSHED_LATER = " AND set_config('synchronous_commit', 'off', true) IS NOT NULL"
"""A condition that is always true: the commit of the statement it is in does not wait for the disk. Nothing
follows from a claim that a crash of the server loses: the first write under it waits, and so for both. Not
for a claim that is a request as well, or a part of another transaction."""


@cache
def _claim_sql(dialect: Dialect, selection: str, requested: bool, *, lazily: bool) -> str:
    """Take a session that is named."""
    sessions = table(Session)
    asks = f', "run_requested" = s."run_requested" OR NOT {_waits_for_retry("s.")}' if requested else ""
    return (
        f"WITH next AS ({selection}) UPDATE {sessions.name} s SET {_TAKEN}{asks}"  # noqa: S608
        f' FROM next WHERE s."session_id" = next."session_id"{_FLUSHED_LATER if lazily else ""}'
        f' RETURNING 0, NULL, s.xmin::text, next."lease_owner",'
        f" {sessions.selection(dialect, ALL_COLUMNS, 's.')}"
    )


@cache
def _claim_next_sql(dialect: Dialect, selection: str, *, lazily: bool) -> str:
    """Take the session whose turn it is, and say how many have come to queue."""
    sessions = table(Session)
    return (
        f"{selection}, taken AS (UPDATE {sessions.name} s SET {_TAKEN} FROM next"  # noqa: S608
        f' WHERE s."session_id" = next."session_id"{_FLUSHED_LATER if lazily else ""}'
        ' RETURNING next."turn", s.xmin::text AS row_version, next."lease_owner" AS owner_before,'
        f" {sessions.selection(dialect, ALL_COLUMNS, 's.')})"
        " SELECT (SELECT count(*) FROM late), taken.* FROM (SELECT 1) one LEFT JOIN taken ON true"
    )


def _selection_by_name(
    connection: BaseDatabaseWrapper, wanted: Wanted, *, locking: bool = True
) -> tuple[str, list[Any]]:
    """The session that is named and who has its lease, as a query and its parameters."""
    dialect = dialect_of(connection)
    params: list[Any] = [wanted.session_id, *dialect.lease_clock()]
    conditions = ['"session_id" = %s', present(), free(dialect.lease_now)]
    if wanted.session_owner is not UNSET:
        conditions.append('"owner_id" = %s')
        params.append(_key(dialect, wanted.session_owner))
    if wanted.how != NAMED:
        conditions.append((_DUE if wanted.how == DUE else _HAS_WORK).format(clock=dialect.moment))
        params += dialect.parameters([timezone.now()])
    where = " AND ".join(conditions)
    sql = f'SELECT "session_id", "lease_owner" FROM {table(Session).name} WHERE {where}'  # noqa: S608
    return (dialect.locking(sql), [*params, *dialect.waiting()]) if locking else (sql, params)


def _waits_for_retry(prefix: str = "") -> str:
    """`SessionRow.waits_for_retry`, as a condition."""
    return f'({prefix}"run_id" IS NOT NULL AND {prefix}"retry_attempt" > 0 AND {prefix}"lease_owner" IS NULL)'


_DUE = '"runnable_at" <= {clock}'

_HAS_WORK = (
    f"({_DUE}"
    f' OR ("run_id" IS NOT NULL AND NOT {_waits_for_retry()})'
    ' OR ("run_id" IS NULL AND "pending_inputs" > 0 AND NOT "awaiting_client"'
    ' AND NOT "awaiting_children" AND "status" <> \'paused\'))'
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
