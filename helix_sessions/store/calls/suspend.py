"""Suspension: everything an agent needs to continue is in the row, and its process may end."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput
from helix_sessions.store.calls import call_index, children
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import check_version, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import runs
from helix_sessions.store.state import checkpoints, child_waits, commits
from helix_sessions.store.state import pending_calls as pending_call_map
from helix_sessions.store.state.checkpoints import MetaLike
from helix_sessions.types import (
    JSON,
    SUSPENSIONS,
    ChildWait,
    CommitResult,
    Messages,
    PendingCall,
    SessionState,
    Suspension,
)


def suspend(
    store: Store,
    session_id: str,
    kind: Suspension,
    *,
    state: SessionState,
    run_id: str,
    append_messages: Messages = (),
    pending_calls: Sequence[PendingCall | Mapping[str, Any]] = (),
    awaiting_children: Sequence[ChildWait | Mapping[str, Any]] = (),
    suspended_step_id: str | None = None,
    suspension_context: JSON = None,
    checkpoint_meta: MetaLike = None,
    expected_version: int | None = None,
) -> CommitResult:
    """Commit the step with the results that are ready, and let the rest wait in the row.

    Ends the run as `suspended_<kind>`. The answers to pending calls find their owner through the root
    of the tree, which is changed as well. Children that are running, ephemeral and not awaited are
    failed; `resume` hands them back. Repeated with the same checkpoint id it returns the first result.
    """
    key = session_key(session_id)
    status = f"suspended_{inputs.choice(kind, SUSPENSIONS, 'The kind of a suspension')}"
    run_key = inputs.identifier(run_id, "The run id")
    calls, awaited = pending_call_map.check(pending_calls), child_waits.check(awaiting_children)
    step = commits.check(_suspended(state, suspended_step_id, suspension_context), append_messages)
    meta = checkpoints.check_meta(checkpoint_meta)
    meta = replace(meta, run_id=meta.run_id or run_key)
    version = inputs.expected_version(expected_version)
    asked = documents.write([kind, run_key, calls, awaited])
    fingerprint = step.fingerprint("suspend", meta, asked)
    with write_tree(store.using, store._lease) as tree:
        root, work = tree.lock_with_root(key, store._owner)
        store._check_head(work)
        made = checkpoints.replay(work, meta, fingerprint)
        if made is not None:
            return made
        check_version(work, version)
        _check_running(work, run_key)
        promoted = commits.put(work, step, meta)
        if calls:
            asked_now = pending_call_map.request(calls, run_key, work.now)
            work.change(**pending_call_map.columns({**(state.pending_client_tool_calls or {}), **asked_now}))
            call_index.wait(root, key, calls)
        waits = state.suspended_awaiting_children or {}
        if awaited:
            waits = {**waits, **children.born_settled(tree, work.session, awaited)}
            work.change(**child_waits.columns(waits))
        spared = set(child_waits.waiting(waits))
        children.fail_running(tree, work, spared)
        runs.advance(work, runs.find(store.using, key, run_key), {"status": status})
        call_index.tell_of(work, calls)
        checkpoints.record(work, meta, "staging" if promoted else "save", fingerprint)
    return checkpoints.result_of(work)


def _suspended(state: Any, step_id: str | None, context: JSON) -> SessionState:
    """The state to commit: a suspended session is active, regardless of what the state says."""
    if not isinstance(state, SessionState):
        raise InvalidInput(f"A state must be a SessionState, not {type(state).__name__}.")
    return replace(
        state,
        status="active",
        suspended_step_id=state.suspended_step_id if step_id is None else step_id,
        suspension_context=state.suspension_context if context is None else context,
    )


def _check_running(work: UnitOfWork, run_id: str) -> None:
    if work.session.run_id != run_id:
        run = runs.find(work.connection.alias, work.session.session_id, run_id)
        raise InvalidInput(f"Run {run_id!r} has ended as {run.status}; only a running one is suspended.")
