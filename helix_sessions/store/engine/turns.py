"""Whose turn it is: the session that a claim takes next.

The highest priority that has something to do goes first. Among equals owners take turns: the claim goes on
from the owner it served last, in the order of their keys, and begins again after the last. Of an owner the
session that has waited longest is next. Every step is one probe of an index, so what it costs depends on how
many owners have to be passed over, never on how many sessions they have.

Sessions whose time was still to come when it was set are not in that index. When it has come, a claim lets
them queue; until then they cost nothing.

A cluster answers no such chain of probes in one statement, and each probe asks every node. As long as few
sessions are due, one query reads all of them there, and their order is found here.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.models import Session
from helix_sessions.store.engine import shares
from helix_sessions.store.engine.connection import execute, fetch
from helix_sessions.store.engine.dialect import Dialect, dialect_of
from helix_sessions.store.engine.shares import SHARE
from helix_sessions.store.engine.tables import table
from helix_sessions.values.shares import Bounds

LATE_AT_ONCE = 500
"""So many sessions whose time has come are let queue by one claim."""
LATE_ONE_BY_ONE = 20
"""So many where each takes a statement of its own."""

DUE_READ = 100
"""So many sessions that are due are read at once. Of more of them the next is found step by step."""
CLAIMS_IN_A_CROWD = 20
"""So many claims of a process go on step by step before one tries again to read all that is due."""
FOUND_AT_ONCE = 10
"""So many of the next sessions are found step by step where others may take the first one meanwhile."""

_crowds: dict[tuple[Any, ...], int] = {}
"""How many claims of this process still go step by step, by where and for what they look."""

_TURNS = "helix_session_turn_idx"
_QUEUED = '"runnable_at" IS NOT NULL AND NOT "deferred"'


class Found(NamedTuple):
    """A session to take, who has its lease, and whose turn it is."""

    session_id: str
    lease_owner: str | None
    share: str


def free(clock: str) -> str:
    """A condition: there is no live lease."""
    return f'("lease_owner" IS NULL OR "lease_expires_at" <= {clock})'


# In one statement


def parameters(now: Any, turn: str, types: Sequence[str] | None, bounds: Bounds | None) -> list[str]:
    """Those of `selection`, as PostgreSQL takes them."""
    found: list[Any] = [now, turn]
    if bounds is not None and bounds.owner is not None:
        found.append(bounds.owner)
    for bound in bounds.agent_types.items() if bounds is not None else ():
        found += bound
    return [str(value) for value in (*found, *(types or ()))]


def selection(dialect: Dialect, types: int | None, bounds: Bounds | None, *, owned: bool) -> str:
    """Common tables, of which `next` has the session to take, who has its lease, and whose turn it is, and
    `late` those that are let queue from now on."""
    by_owner = bounds is not None and bounds.owner is not None
    return _selection(dialect, types, by_owner, len(bounds.agent_types) if bounds is not None else 0, owned)


@cache
def _selection(dialect: Dialect, types: int | None, by_owner: bool, by_type: int, owned: bool) -> str:
    sessions = table(Session).name
    tables = ["given AS MATERIALIZED (SELECT %s::timestamptz AS now, %s::text AS turn)"]
    if by_owner:
        tables.append(f"full_owners AS MATERIALIZED ({shares.full_owners(dialect)})")
    if by_type:
        bound = ", ".join(["(%s::text, %s::bigint)"] * by_type)
        tables.append(
            'full_types AS MATERIALIZED (SELECT s."agent_type"'  # noqa: S608
            f" FROM (VALUES {bound}) AS bound (agent_type, most) JOIN {sessions} s"
            f' ON s."agent_type" = bound.agent_type WHERE {shares.leased(dialect)}'
            ' GROUP BY s."agent_type", bound.most HAVING count(*) >= bound.most)'
        )
    tables += _kinds(sessions, types)
    room = (
        " WHERE NOT EXISTS (SELECT 1 FROM full_types f WHERE f.agent_type = a.agent_type)" if by_type else ""
    )
    # By way of an array the planner counts on ten types, where it counts on a hundred of a recursive query:
    # what it would then expect the probes to cost is what it compiles a statement for, at 300 ms a claim.
    listed = f"unnest(ARRAY(SELECT a.agent_type FROM all_kinds a{room})) AS k (agent_type)"  # noqa: S608
    tables.append(f"kinds AS MATERIALIZED (SELECT k.agent_type FROM {listed})")  # noqa: S608
    tables.append(_late(sessions))
    tables += [_levels(sessions), _next(sessions, by_owner=by_owner, owned=owned)]
    return f"WITH RECURSIVE {', '.join(tables)}"


def _kinds(sessions: str, types: int | None) -> list[str]:
    """The agent types to look at: those that are named, or those that there are, each found by one probe."""
    if types is not None:
        listed = ", ".join(["(%s::text)"] * types)
        return [f"all_kinds (agent_type) AS (VALUES {listed})"]
    probe = f'SELECT "agent_type" FROM {sessions} n WHERE {_QUEUED}'  # noqa: S608
    return [
        f'found_kinds (agent_type) AS (({probe} ORDER BY "agent_type" LIMIT 1) UNION ALL SELECT'  # noqa: S608
        f' ({probe} AND n."agent_type" > k.agent_type ORDER BY n."agent_type" LIMIT 1)'
        " FROM found_kinds k WHERE k.agent_type IS NOT NULL)",
        "all_kinds AS (SELECT agent_type FROM found_kinds WHERE agent_type IS NOT NULL)",
    ]


def _late(sessions: str) -> str:
    return (
        f'late AS (UPDATE {sessions} SET "deferred" = false WHERE "session_id" IN (SELECT "session_id"'  # noqa: S608
        f' FROM {sessions} WHERE "runnable_at" IS NOT NULL AND "deferred" AND "runnable_at" <='
        f' (SELECT now FROM given) AND {free("statement_timestamp()")} ORDER BY "runnable_at"'
        f" LIMIT {LATE_AT_ONCE} FOR NO KEY UPDATE SKIP LOCKED) RETURNING 1)"
    )


def _levels(sessions: str) -> str:
    """The priorities that there are, the highest first, each found by one probe for each agent type."""

    def highest(below: str) -> str:
        return (
            f"SELECT max(top.priority) FROM kinds k CROSS JOIN LATERAL (SELECT s.priority FROM {sessions} s"  # noqa: S608
            f" WHERE s.agent_type = k.agent_type AND {_QUEUED}{below} ORDER BY s.priority DESC LIMIT 1) top"
        )

    lower = highest(" AND s.priority < l.priority")
    return (
        f"levels (priority) AS ({highest('')} UNION ALL"  # noqa: S608
        f" SELECT ({lower}) FROM levels l WHERE l.priority IS NOT NULL)"
    )


def _next(sessions: str, *, by_owner: bool, owned: bool) -> str:
    """The first turn in which there is a session to take, of the highest priority in which there is one."""
    of_kind = f"s.agent_type = k.agent_type AND s.priority = l.priority AND {_QUEUED}"
    owner = (
        f"SELECT o.share FROM kinds k CROSS JOIN LATERAL (SELECT {SHARE} AS share FROM {sessions} s"  # noqa: S608
        f" WHERE {of_kind} AND {SHARE} {{after}} ORDER BY {SHARE} LIMIT 1) o WHERE {{within}}"
        " ORDER BY o.share LIMIT 1"
    )
    following = owner.format(after="> t.turn", within="t.lap = 0 OR o.share <= given.turn")
    first = owner.format(after=">= ''", within="t.lap = 0 AND o.share <= given.turn")
    turns = (
        "WITH RECURSIVE turns (turn, lap, step) AS (SELECT given.turn, 0, 0 FROM given UNION ALL"  # noqa: S608
        " SELECT n.share, n.lap, t.step + 1 FROM turns t CROSS JOIN given CROSS JOIN LATERAL ("
        f"(SELECT share, t.lap FROM ({following}) f) UNION ALL (SELECT share, 1 FROM ({first}) f) LIMIT 1"
        ") n (share, lap)) SELECT turn FROM turns WHERE step > 0"
    )
    room = "" if not by_owner else " AND NOT EXISTS (SELECT 1 FROM full_owners f WHERE f.share = t.turn)"
    return (
        "next AS MATERIALIZED (SELECT found.* FROM levels l CROSS JOIN LATERAL ("  # noqa: S608
        f"SELECT c.session_id, c.lease_owner, t.turn FROM ({'SELECT turn FROM given' if owned else turns}) t"
        " CROSS JOIN LATERAL (SELECT one.* FROM kinds k CROSS JOIN LATERAL ("
        f"SELECT s.session_id, s.lease_owner, s.runnable_at FROM {sessions} s WHERE {of_kind}"
        f" AND {SHARE} = t.turn AND s.runnable_at <= (SELECT now FROM given)"
        f" AND {free('statement_timestamp()')}{room}"
        " ORDER BY s.runnable_at, s.session_id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) one"
        " ORDER BY one.runnable_at, one.session_id LIMIT 1) c LIMIT 1"
        ") found WHERE l.priority IS NOT NULL LIMIT 1)"
    )


# All that is due


def find_unlocked(
    connection: BaseDatabaseWrapper,
    now: Any,
    turn: str,
    types: Sequence[str] | None,
    bounds: Bounds | None,
    *,
    owned: bool,
) -> list[Found]:
    """The next sessions to take, in the order of their turns, without a lock. Others may take them."""
    place = connection.alias, types
    claims_left = 0 if owned else _crowds.pop(place, 0)
    if not claims_left:
        due = _read_due(connection, now, turn, types, owned=owned)
        if len(due) <= DUE_READ:
            return _in_turn(due, turn, _full(connection, bounds if due else None))
        claims_left = CLAIMS_IN_A_CROWD
    found = step_by_step(connection, now, turn, types, bounds, owned=owned)
    if found and claims_left > 1 and not owned:
        _crowds[place] = claims_left - 1
    return found


def _full(connection: BaseDatabaseWrapper, bounds: Bounds | None) -> tuple[set[str], set[str]]:
    """The owners and the agent types that have all their shares."""
    return shares.running(connection, bounds) if bounds is not None else (set(), set())


class _Due(NamedTuple):
    session_id: str
    lease_owner: str | None
    share: str
    agent_type: str
    priority: int
    runnable_at: Any


def _read_due(
    connection: BaseDatabaseWrapper, now: Any, turn: str, types: Sequence[str] | None, *, owned: bool
) -> list[_Due]:
    """All sessions that are due, or `DUE_READ` and one more of them, in the order of an index: in another,
    all that are due would be read, and in none the whole table, where the planner remembers many."""
    dialect = dialect_of(connection)
    of_types = "" if types is None else f' AND "agent_type" IN ({", ".join(["%s"] * len(types))})'
    is_due = f'"runnable_at" IS NOT NULL AND "runnable_at" <= {dialect.moment} AND {free(dialect.lease_now)}'
    sql = (
        f'SELECT "session_id", "lease_owner", {SHARE}, "agent_type", "priority", "runnable_at"'  # noqa: S608
        f" FROM {table(Session).name} WHERE {is_due}{of_types}{f' AND {SHARE} = %s' if owned else ''}"
        f' ORDER BY "agent_type", "runnable_at", "session_id" LIMIT {DUE_READ + 1}'
    )
    of_owner = [turn] if owned else []
    params = [*dialect.parameters([now]), *dialect.lease_clock(), *(types or ()), *of_owner]
    return [_Due(*row) for row in fetch(connection, sql, params)]


def _in_turn(due: list[_Due], turn: str, full: tuple[set[str], set[str]]) -> list[Found]:
    """Those that have a share left, in the order of their turns."""
    owners, types = full
    left = [one for one in due if one.share not in owners and one.agent_type not in types]
    left.sort(key=lambda one: (-one.priority, one.share <= turn, one.share, one.runnable_at, one.session_id))
    return [Found(*one[:3]) for one in left]


# Step by step


def step_by_step(
    connection: BaseDatabaseWrapper,
    now: Any,
    turn: str,
    types: Sequence[str] | None,
    bounds: Bounds | None,
    *,
    owned: bool,
) -> list[Found]:
    """The session to take, or several where others may take the first one meanwhile, in the order of their
    turns. What is late is let queue before."""
    search = _Search(connection, now, types, bounds)
    search.let_queue()
    priority: int | None = None
    while (priority := search.highest(below=priority)) is not None:
        found = search.of_owner(priority, turn) if owned else search.next(priority, turn)
        if found:
            return found
    return []


class _Search:
    """Probes of the index, one agent type at a time."""

    def __init__(
        self, connection: BaseDatabaseWrapper, now: Any, types: Sequence[str] | None, bounds: Bounds | None
    ) -> None:
        self._connection = connection
        self._dialect = dialect_of(connection)
        self._now = self._dialect.parameters([now])
        self._named = types
        self._full_owners, self._full_types = _full(connection, bounds)

    def let_queue(self) -> None:
        """Let sessions queue whose time has come."""
        sessions = table(Session).name
        is_late = (
            '"runnable_at" IS NOT NULL AND "deferred" AND "runnable_at" <= %s'
            f" AND {free(self._dialect.lease_now)}"
        )
        most = LATE_ONE_BY_ONE if self._dialect.searches_unlocked else LATE_AT_ONCE
        late = (
            f'SELECT "session_id" FROM {sessions} WHERE {is_late}'  # noqa: S608
            f' ORDER BY "runnable_at" LIMIT {most}{self._skipping}'
        )
        params = [*self._now, *self._dialect.lease_clock()]
        found = [session_id for (session_id,) in fetch(self._connection, late, params)]
        queue = f'UPDATE {sessions} SET "deferred" = (1 = 0) WHERE'  # noqa: S608
        if self._dialect.searches_unlocked:  # a row that another has locked is skipped on its node
            one = f'"session_id" = %s AND {is_late}'
            free_one = f'SELECT "session_id" FROM {sessions} WHERE {one} FOR NO KEY UPDATE SKIP LOCKED'  # noqa: S608
            sql = f'{queue} "session_id" = %s AND "session_id" IN ({free_one})'
            for session_id in found:
                execute(self._connection, sql, [session_id, session_id, *params])
        elif found:
            among, ids = self._dialect.among('"session_id"', found)
            execute(self._connection, f"{queue} {is_late} AND {among}", [*params, ids])
        self.types = [one for one in self._types() if one not in self._full_types]

    def highest(self, *, below: int | None) -> int | None:
        """The highest priority, below another, that there is."""
        lower, params = ("", []) if below is None else (' AND "priority" < %s', [below])
        found = self._each('"priority"', lower, params, '"priority" DESC')
        return max((row[0] for row in found), default=None)

    def next(self, priority: int, turn: str) -> list[Found]:
        """The first sessions of a priority, from the owner after `turn` on. An owner who has no share left is
        passed over."""
        for lap, until in ((f"{SHARE} > %s", []), (f"{SHARE} <= %s", [turn])):
            found = self._waiting(priority, lap, [turn])
            while found:
                left = [one for one in found if one.share not in self._full_owners]
                if left:
                    return left
                after = f"{SHARE} > %s{f' AND {SHARE} <= %s' if until else ''}"
                found = self._waiting(priority, after, [found[-1].share, *until])
        return []

    def of_owner(self, priority: int, owner: str) -> list[Found]:
        """The sessions of one owner that have waited longest."""
        return [] if owner in self._full_owners else self._waiting(priority, f"{SHARE} = %s", [owner])

    def _waiting(self, priority: int, compared: str, to: list[str]) -> list[Found]:
        """The first sessions of some owners, in the order of their turns."""
        condition = (
            f' AND "priority" = %s AND {compared} AND "runnable_at" <= %s AND {free(self._dialect.lease_now)}'
        )
        params = [priority, *to, *self._now, *self._dialect.lease_clock()]
        columns = f'{SHARE}, "runnable_at", "session_id"'
        most = FOUND_AT_ONCE if self._dialect.searches_unlocked else 1
        found = self._each(f'{columns}, "lease_owner"', condition, params, columns, most, self._skipping)
        found.sort(key=lambda row: row[:3])
        return [Found(session_id, lease_owner, share) for share, _, session_id, lease_owner in found[:most]]

    def _each(
        self,
        columns: str,
        condition: str,
        params: Sequence[Any],
        order: str,
        most: int = 1,
        locking: str = "",
    ) -> list[tuple[Any, ...]]:
        """The first rows of each agent type."""
        sql = (
            f"SELECT {columns} FROM {table(Session).name}{self._dialect.using_index(_TURNS)}"  # noqa: S608
            f' WHERE "agent_type" = %s AND {_QUEUED}{condition} ORDER BY {order} LIMIT {most}{locking}'
        )
        given = [self._dialect.parameters([one, *params]) for one in self.types]
        return [row for one in given for row in fetch(self._connection, sql, one)]

    @property
    def _skipping(self) -> str:
        skips = self._dialect.skips_locked_rows and not self._dialect.searches_unlocked
        return " FOR NO KEY UPDATE SKIP LOCKED" if skips else ""

    def _types(self) -> Sequence[str]:
        if self._named is not None:
            return self._named
        probe = f'SELECT "agent_type" FROM {table(Session).name} WHERE {_QUEUED}'  # noqa: S608
        found: list[str] = []
        rows = fetch(self._connection, f'{probe} ORDER BY "agent_type" LIMIT 1', [])
        while rows:
            found.append(rows[0][0])
            rows = fetch(
                self._connection, f'{probe} AND "agent_type" > %s ORDER BY "agent_type" LIMIT 1', found[-1:]
            )
        return found
