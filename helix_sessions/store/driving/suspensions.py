"""A step that cannot end yet: calls wait for people, for clients, and for sub-agents, which are spawned here.

The commit of what is ready, the waits, the children with their prompts and the end of the lease are one
transaction. So there is no child without a parent that waits for it, and no wait without a child.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.store.calls import call_index, children, sub_sessions
from helix_sessions.store.driving.boundaries import Outcome, Step, carried, put, record
from helix_sessions.store.driving.driver import Driver, give_back
from helix_sessions.store.driving.knowledge import Knowledge
from helix_sessions.store.driving.trees import OWN_BUDGET, Used, used_of
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.operation import operation
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.session_rows import read_row
from helix_sessions.store.engine.transactions import Transaction, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.inbox import inbox
from helix_sessions.store.runs import runs, statuses
from helix_sessions.store.sessions import create
from helix_sessions.store.state import (
    agent_records,
    child_waits,
    pending_calls,
    runnable,
    snapshots,
)
from helix_sessions.types import PendingCall, Spawn, SubSessionRef
from helix_sessions.values.agents import Budget


class Interrupted(Exception):
    """The session was asked to stop; it does not begin to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnedCall:
    """A tool call that a sub-agent answers."""

    call: Mapping[str, Any]
    spawn: Spawn
    budget: Budget | None = None
    """What the child may use."""


@operation
def suspend(
    driver: Driver,
    step: Step,
    kind: str,
    *,
    pending: Sequence[PendingCall] = (),
    spawns: Sequence[SpawnedCall] = (),
    usage: Any = None,
    turns: int = 0,
    spent: Mapping[str, Any] | None = None,
) -> Outcome:
    """Commit what is ready, and let the session wait for the rest; the session is given back."""
    store, key, run = driver.store, driver.session_id, driver.running
    calls = pending_calls.check(pending)
    before = driver.known
    found: list[Knowledge] = []
    with write_tree(store.using, store._lease) as tree:
        root, work = tree.lock_with_root(key, store._owner)
        store._check_head(work)
        known = driver._complete(work, before, found)
        if work.session.interrupt_requested_at is not None:
            raise Interrupted
        source = put(driver, work, known, step)
        work.change(suspended_step_id=step.turn_id)
        if calls:
            asked = pending_calls.request(calls, run.run_id, work.now)
            standing = pending_calls.read(work.session.pending_client_tool_calls)
            work.change(**pending_calls.columns({**standing, **asked}))
            call_index.wait(root, key, calls)
        continued: dict[str, Used] = {}
        waits = {str(spawned.call["id"]): _spawn(tree, work, step, spawned, continued) for spawned in spawns}
        if waits:
            standing = child_waits.read(work.session.suspended_awaiting_children)
            work.change(**child_waits.columns({**standing, **waits}))
        children.fail_running(tree, work, {wait["sub_session_id"] for wait in waits.values()})
        columns: dict[str, Any] = {"status": f"suspended_{kind}", "step_count": turns}
        if usage is not None:
            columns["usage"] = documents.dump(usage)
        metadata = carried(run, spent or {})
        if driver.own_budget is not None:
            metadata[OWN_BUDGET] = agent_records.written_budget(driver.own_budget)
        if waits:
            metadata["spawned"] = _companions(metadata.get("spawned"), continued)
        columns["metadata"] = documents.dump(metadata)
        ended = runs.advance(work, replace(run, usage=usage), columns, turn_id=step.turn_id)
        call_index.tell_of(work, calls)
        give_back(work)
        record(work, step, source)
    driver._learn(work, known, before)
    driver.run = driver.lease = None
    return Outcome(run=ended)


def check_spawn(spawn: Spawn) -> None:
    """Raise if a sub-agent cannot be stored like this."""
    inputs.identifier(spawn.agent_type, "agent_type")
    inbox.checked_prompt(spawn.prompt, "spawn")
    documents.dump(dict(spawn.custom_state or {}))


def depth_of(driver: Driver, most: int) -> int:
    """How many sessions are above this one; no more than `most` are looked for."""
    depth, above = 0, driver.known.row.parent_session_id
    while above is not None and depth < most:
        depth += 1
        try:
            above = read_row(driver.store._connection, above, ("parent_session_id",)).parent_session_id
        except SessionNotFound:
            break
    return depth


def child_id(parent_id: str, turn_id: str, call_id: str, spawn: Spawn) -> str:
    """The id of a call's sub-session: for the same call, and for a companion of the same name, the same."""
    return companion_id(parent_id, spawn) or f"child-{documents.digest(parent_id, turn_id, call_id)}"


def companion_id(parent_id: str, spawn: Spawn) -> str | None:
    """The id of a companion; `None`: the sub-agent is none."""
    if spawn.mode != "persistent":
        return None
    return f"companion-{documents.digest(parent_id, spawn.agent_type, spawn.name or spawn.agent_type)}"


def _companions(before: Any, continued: Mapping[str, Used]) -> dict[str, Sequence[float]]:
    """What the sub-sessions that an activity goes on with had used before it."""
    return {**continued, **(before if isinstance(before, dict) else {})}


def _spawn(
    tree: Transaction, parent: UnitOfWork, step: Step, spawned: SpawnedCall, continued: dict[str, Used]
) -> dict[str, Any]:
    """Give a sub-agent its prompt; the wait for it. What one that is `continued` has used is noted."""
    spawn, call_id = spawned.spawn, str(spawned.call["id"])
    key = child_id(parent.session.session_id, step.turn_id, call_id, spawn)
    refs = sub_sessions.stored(tree.connection.alias, parent.session.session_id)
    known = any(ref.sub_session_id == key for ref in refs)
    try:
        child = tree.lock(key, ALL_COLUMNS)
    except SessionNotFound:
        child = _create(tree, parent, key, spawned)
    else:
        continued[key] = used_of(child.session)
        if child.session.status != "active":
            statuses.enter(child, {"status": "active", "output": None})
    agent_records.give_budget(child, spawned.budget)
    ref = SubSessionRef(
        sub_session_id=key, agent_type=spawn.agent_type, parent_tool_call_id=call_id, mode=spawn.mode
    )
    _refer(parent, ref, known)
    input_id = f"spawn-{documents.digest(parent.session.session_id, step.turn_id, call_id)}"
    runnable.hurry(child, parent.session.priority)
    inbox.admit(child, input_id, documents.dump(spawn.prompt), "queue")
    runnable.ask(child)
    if child.new:
        child.flush()
    wait = {"parent_tool_call_id": call_id, "sub_session_id": key, "agent_type": spawn.agent_type}
    if spawned.call.get("edited"):
        wait["edited_arguments"] = spawned.call["arguments"]
    return wait


def _create(tree: Transaction, parent: UnitOfWork, key: str, spawned: SpawnedCall) -> UnitOfWork:
    above, spawn = parent.session, spawned.spawn
    columns = {
        "session_id": key,
        "agent_type": spawn.agent_type,
        "parent_session_id": above.session_id,
        "root_session_id": above.root_session_id or above.session_id,
        "owner_id": above.owner_id,
        "user_id": above.user_id,
        "tracing_context": above.tracing_context,
        "base_priority": above.priority,
        "priority": above.priority,
    }
    child = create.new_work(tree.connection, columns)
    custom = dict(spawn.custom_state or {})
    snapshots.record(child, custom, documents.dump(custom))
    child.event("session_started", {"agent_type": spawn.agent_type, "parent_session_id": above.session_id})
    return child


def _refer(parent: UnitOfWork, ref: SubSessionRef, known: bool) -> None:
    data = {"sub_session_id": ref.sub_session_id, "agent_type": ref.agent_type}
    data["parent_tool_call_id"] = str(ref.parent_tool_call_id)
    if known:
        changes = {"status": "active", "parent_tool_call_id": ref.parent_tool_call_id, "result": None}
        key = {"sub_session_id": ref.sub_session_id}
        parent.update(models.SubSessionRef, key, updated_at=parent.now, **changes)
        parent.event("subagent_updated", {**data, "changes": changes})
        return
    seq = parent.event("subagent_spawned", data)
    values = {name: value for name, value in asdict(ref).items() if name not in ("created_at", "updated_at")}
    values["result"] = None
    parent.insert(models.SubSessionRef, seq=seq, created_at=parent.now, updated_at=parent.now, **values)
