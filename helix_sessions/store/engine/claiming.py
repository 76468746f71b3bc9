"""Taking a session to drive: the next that wants to run, or a named one.

On PostgreSQL it is one statement, which leaves out what others are taking at this moment; elsewhere, and
where `CONCURRENCY` bounds what runs at once, it is one transaction. A cluster finds the next with one query,
and takes it with a statement of that session alone. The row is returned whole, and remembered, so that the
owner's next write needs no lock.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
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
from helix_sessions.store.engine.turns import Found, free
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.types import UNSET
from helix_sessions.values.shares import Bounds

NAMED, HAS_WORK, DUE, UNLOCKED = "named", "has work", "due", "unlocked"
"""How a session that is named is taken: in any case, only if there is something to do for a driver, only if
it is runnable, or only if it is runnable and no other transaction has its row locked."""


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


_ATTEMPTS = 20
"""How often a claim is tried that others got ahead of. Each time there is less left to take."""

_turns: dict[tuple[Any, ...], str] = {}
"""Whose turn it was last in this process, by where and for what it looked. A new process begins anywhere."""


def claim(using: str, wanted: Wanted) -> Claimed | None:
    """Take a session, or say that there is none to take; `NoShare` if one that is named has to wait."""
    connection = connections[using]
    connect(connection)
    bounds = shares.bounds() if wanted.bounded else None
    dialect = dialect_of(connection)
    way = _in_one_statement if dialect.claims_in_one_statement else _in_one_transaction
    if wanted.session_id is None and dialect.searches_unlocked:
        way = _of_those_found
    for _ in range(_ATTEMPTS):
        try:
            return way(using, wanted, bounds)
        except NoShare:
            if wanted.session_id is not None:
                raise
    return None


def _in_one_statement(using: str, wanted: Wanted, bounds: Bounds | None) -> Claimed | None:
    """With bounds, the claim is undone if another got the last share meanwhile."""
    connection = connections[using]
    if bounds is None and is_between_transactions(connection):
        taken = _take(connection, wanted, None)
    else:
        with locking_transaction(using):
            taken = _take(connection, wanted, bounds)
            row = None if bounds is None or taken is None else taken.claimed.row
            if row is not None and not shares.has_room(connection, row, taken=True):
                raise NoShare
    if taken is not None and is_between_transactions(connection):
        remembered_rows.remember(connection, taken.claimed.row.session_id, taken.work.as_known())
    return None if taken is None else taken.claimed


def _of_those_found(using: str, wanted: Wanted, bounds: Bounds | None) -> Claimed | None:
    """Look for sessions without a lock, then take the first that is free still. Look again for others if none
    is."""
    connection = connections[using]
    owned, turn = wanted.session_owner is not UNSET, _turn(wanted, using)
    tried: set[str] = set()
    for _ in range(_ATTEMPTS):
        now = timezone.now()
        found = turns.find_unlocked(connection, now, turn, wanted.agent_types, bounds, owned=owned)
        left = [one for one in found if one.session_id not in tried]
        for one in left:
            tried.add(one.session_id)
            named = replace(wanted, session_id=one.session_id, how=UNLOCKED)
            claimed = _in_one_statement(using, named, bounds)
            if claimed is not None:
                _turns[_place(using, wanted)] = one.share
                return claimed
        if not left:
            break
    return None


class _Taken(NamedTuple):
    claimed: Claimed
    work: UnitOfWork


def _take(connection: BaseDatabaseWrapper, wanted: Wanted, bounds: Bounds | None) -> _Taken | None:
    mark = remembered_rows.new_mark()
    dialect = dialect_of(connection)
    # Nothing follows from a claim that a crash of the server loses: the first write under it waits for the
    # disk, and so for both. But a claim may be a request as well, or a part of another transaction.
    lazily = not wanted.requested and is_between_transactions(connection)
    taken = [_text(value) for value in (wanted.owner, wanted.token, wanted.ttl, wanted.ttl, mark)]
    while True:
        with errors_translated(connection):
            if wanted.session_id is not None:
                sql, params = _selection_by_name(connection, wanted)
                sql = _claim_sql(dialect, sql, wanted.requested, lazily=lazily)
                named = [*params, *taken, wanted.session_id]
                rows = dialect.fetch_locking(connection, sql, named, lazily=lazily)
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
    with write_tree(using) as tree:
        found = _candidate(tree.connection, wanted, bounds)
        if found is None:
            return None
        work = tree.lock(found.session_id, ALL_COLUMNS)
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
        _turns[_place(using, wanted)] = found.share
    return Claimed(work.session, found.lease_owner)


def _candidate(connection: BaseDatabaseWrapper, wanted: Wanted, bounds: Bounds | None) -> Found | None:
    """The session to take."""
    if wanted.session_id is None:
        owned = wanted.session_owner is not UNSET
        now, turn = timezone.now(), _turn(wanted, connection.alias)
        found = turns.step_by_step(connection, now, turn, wanted.agent_types, bounds, owned=owned)
        return found[0] if found else None
    rows = fetch(connection, *_selection_by_name(connection, wanted))
    return Found(rows[0][0], rows[0][1], "") if rows else None


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


@cache
def _claim_sql(dialect: Dialect, selection: str, requested: bool, *, lazily: bool) -> str:
    """Take a session that is named."""
    sessions = table(Session)
    asks = f', "run_requested" = s."run_requested" OR NOT {_waits_for_retry("s.")}' if requested else ""
    return (
        f"WITH next AS ({selection}) UPDATE {sessions.name} s SET {_TAKEN}{asks}"  # noqa: S608
        f' FROM next WHERE s."session_id" = next."session_id" AND s."session_id" = %s'
        f"{dialect.flushed_later if lazily else ''}"
        f' RETURNING 0, NULL, s.xmin::text, next."lease_owner",'
        f" {sessions.selection(dialect, ALL_COLUMNS, 's.')}"
    )


@cache
def _claim_next_sql(dialect: Dialect, selection: str, *, lazily: bool) -> str:
    """Take the session whose turn it is, and say how many have come to queue."""
    sessions = table(Session)
    return (
        f"{selection}, taken AS (UPDATE {sessions.name} s SET {_TAKEN} FROM next"  # noqa: S608
        f' WHERE s."session_id" = next."session_id"{dialect.flushed_later if lazily else ""}'
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
        conditions.append((_HAS_WORK if wanted.how == HAS_WORK else _DUE).format(clock=dialect.moment))
        params += dialect.parameters([timezone.now()])
    where = " AND ".join(conditions)
    sql = f'SELECT "session_id", "lease_owner" FROM {table(Session).name} WHERE {where}'  # noqa: S608
    if wanted.how == UNLOCKED:
        return f"{sql} FOR NO KEY UPDATE SKIP LOCKED", params
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
