"""What the sessions around one have used: a budget counts the tree below its session.

Sub-agents that run side by side draw on one budget, so each looks at what all of them have used, those of the
sessions above it included.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from helix_sessions.content import documents
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.messages.usage import usage_of
from helix_sessions.store.driving import knowledge, sql
from helix_sessions.store.driving.driver import Driver
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.session_rows import SessionRow, read_row
from helix_sessions.values.agents import Budget, optional

OWN_BUDGET = "budget"
"""In the metadata of a run: the budget of the agent that drove it. The drivers of children may not have that
agent."""


class Used(NamedTuple):
    """What sessions have used."""

    steps: int = 0
    tokens: int = 0
    cost: float = 0.0

    def plus(self, other: "Used") -> "Used":
        return Used(self.steps + other.steps, self.tokens + other.tokens, self.cost + other.cost)

    def minus(self, other: "Used") -> "Used":
        return Used(self.steps - other.steps, self.tokens - other.tokens, self.cost - other.cost)


class Activity(NamedTuple):
    """What a session does from a prompt on, over the runs that this takes."""

    session_id: str
    since: datetime
    companions: dict[str, Used]
    """What the sub-sessions that it goes on with had used before."""


class Share(NamedTuple):
    """A budget of a session above, on which others draw as well."""

    budget: Budget
    spent: Mapping[str, Any]
    """What its session has used itself."""
    below: Used


class Tree(NamedTuple):
    """What counts for a session's budget beside its own use."""

    below: Used = Used()
    above: tuple[Share, ...] = ()


def is_part_of_tree(driver: Driver, metadata: Mapping[str, Any]) -> bool:
    """Whether the budget of the session has others to count."""
    if driver.definition.budget is None:
        return False
    return "spawned" in metadata or driver.known.row.parent_session_id is not None


def measure(driver: Driver, metadata: Mapping[str, Any]) -> Tree:
    """What the sessions below and beside have used so far. `metadata` is that of the session's run."""
    row = driver.known.row
    own = _activity(row.session_id, metadata) if "spawned" in metadata else None
    above = _above(driver)
    activities = [*([] if own is None else [own]), *(activity for activity, _, _ in above)]
    if not activities:
        return Tree()
    found = _sessions(driver, row.root_session_id or row.session_id, activities)
    return Tree(
        Used() if own is None else _used_below(own, found),
        tuple(Share(budget, spent, _used_below(activity, found)) for activity, budget, spent in above),
    )


def used_of(row: SessionRow) -> Used:
    """What a session, read whole, has used in its life."""
    used = usage_of(None if row.usage is None else documents.load(row.usage))
    return Used(row.step_count, used.tokens, used.cost)


_Above = list[tuple[Activity, Budget, Mapping[str, Any]]]


def _above(driver: Driver) -> _Above:
    """The activities above that wait for this session and have a budget. They rest while it is driven, so
    they are read once."""
    if driver.above is None:
        driver.above = _read_above(driver)
    above: _Above = driver.above
    return above


def _read_above(driver: Driver) -> _Above:
    above: _Above = []
    named, met = driver.known.row.parent_session_id, {driver.session_id}
    while named is not None and named not in met:
        met.add(named)
        try:
            row = read_row(driver.store._connection, named, ALL_COLUMNS)
        except SessionNotFound:
            break
        known = knowledge.read(driver.store._connection, row)
        last = known.last_run
        if last is None or "spawned" not in last.metadata:
            break
        budget = known.defined(optional(Budget, last.metadata.get(OWN_BUDGET))).budget
        if budget is not None:
            above.append((_activity(named, last.metadata), budget, last.metadata.get("spent") or {}))
        named = row.parent_session_id
    return above


def _activity(session_id: str, metadata: Mapping[str, Any]) -> Activity:
    spawned = metadata["spawned"]
    companions = {key: Used(*used) for key, used in spawned.items()} if isinstance(spawned, dict) else {}
    return Activity(session_id, datetime.fromisoformat(metadata["since"]), companions)


_Found = dict[str, tuple[str | None, datetime, Used]]


def _sessions(driver: Driver, root: str, activities: list[Activity]) -> _Found:
    dialect, connection = driver.store._dialect, driver.store._connection
    companions = sorted({key for activity in activities for key in activity.companions})
    since = dialect.parameters([min(activity.since for activity in activities)])
    rows = fetch(connection, sql.used_in_tree(dialect, len(companions)), [root, *since, *companions])
    columns = sql.USED_IN_TREE
    sessions = [SessionRow.read(values[0], columns, values) for values in rows]
    return {row.session_id: (row.parent_session_id, row.created_at, used_of(row)) for row in sessions}


def _used_below(activity: Activity, found: _Found) -> Used:
    total = Used()
    for key, (_, created_at, used) in found.items():
        before = activity.companions.get(key)
        counts = before is not None or created_at >= activity.since
        if counts and _is_below(key, activity.session_id, found):
            total = total.plus(used if before is None else used.minus(before))
    return total


def _is_below(key: str, top: str, found: _Found) -> bool:
    above: str | None = found[key][0]
    for _ in range(len(found) + 1):
        if above == top:
            return key != top
        if above is None or above not in found:
            return False
        above = found[above][0]
    return False
