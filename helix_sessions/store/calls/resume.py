"""Resume: continue a suspended or stopped session, in any process."""

from datetime import datetime
from typing import Any

from django.utils import timezone

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import NotResumable, RunInProgress, StillWaiting
from helix_sessions.messages.tool_ledger import closing_message
from helix_sessions.store.calls import call_index, children, sub_sessions, submissions
from helix_sessions.store.engine import ids, inputs, open_calls
from helix_sessions.store.engine.operation import operation
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import check_version, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import interrupts, runs, statuses
from helix_sessions.store.state import child_waits, pending_calls, snapshots, state_rows
from helix_sessions.store.state.child_waits import Waits
from helix_sessions.store.state.pending_calls import Entries
from helix_sessions.types import Message, Resumption

_STOPPED = ("interrupted", "paused")


def resume(
    store: Store,
    session_id: str,
    *,
    message: str | Message | None = None,
    expected_version: int | None = None,
    run_id: str | None = None,
) -> Resumption:
    """Resume a session that is suspended, interrupted or paused: of N callers exactly one does.

    Answers and settled children become tool messages in the order of their calls. Approved calls have
    no result yet: the caller executes them, with the `arguments` they come with, and appends it, and only
    then what a user says next, so a `message` together with approved calls is refused as `StillWaiting`.
    """
    return _resume(store, session_id, message, expected_version, run_id)


@operation
def resume_driven(store: Store, session_id: str, stale_request: datetime | None) -> Resumption:
    """`resume`, by the session's driver: the children that come back as `respawn` run again. `AskedToStop`,
    unless the request to stop is the one that was there before the claim."""
    return _resume(store, session_id, respawns=True, stale_request=stale_request)


def _resume(
    store: Store,
    session_id: str,
    message: str | Message | None = None,
    expected_version: int | None = None,
    run_id: str | None = None,
    *,
    respawns: bool = False,
    stale_request: datetime | None = None,
) -> Resumption:
    key = session_key(session_id)
    said = inputs.optional_turn_message(message)
    version = inputs.expected_version(expected_version)
    run_key = ids.new_id() if run_id is None else inputs.identifier(run_id, "The run id")
    with write_tree(store.using, store._lease) as tree:
        root, work = tree.lock_with_root(key, store._owner)
        store._check_head(work)
        check_version(work, version)
        session = work.session
        if respawns and session.interrupt_requested_at not in (None, stale_request):
            raise interrupts.AskedToStop
        calls = pending_calls.read(session.pending_client_tool_calls)
        awaited = child_waits.read(session.suspended_awaiting_children)
        _check_resumable(work, calls, awaited)
        # By the clock, not by the session's time, which a machine whose clock is ahead has set forward.
        for call_id in pending_calls.expire(calls, timezone.now()):
            submissions.tell_expired(work, call_id)
        _check_answered(calls, awaited, said is not None)
        custom = snapshots.read(work.connection, key, session.state_base, session.state_number)
        _activate(work)
        results, approved = _results(work, calls, awaited)
        for result in results:
            work.message("tool", documents.write(result))
        if said is not None:
            work.message(*said)
        call_index.complete(root, key, {i: pending_calls.is_expired(entry) for i, entry in calls.items()})
        run = runs.start(work, run_key, "{}")
        respawn = children.to_respawn(store.using, sub_sessions.stored(store.using, key))
        if respawns and respawn:
            children.respawn(tree, work)
    return Resumption(
        state=state_rows.state_of(work.session, custom),
        run=run,
        tool_messages=results,
        approved=approved,
        respawn=respawn,
    )


def _check_resumable(work: UnitOfWork, calls: Entries, awaited: Waits) -> None:
    session = work.session
    if session.run_id is not None:
        raise RunInProgress(f"Run {session.run_id!r} is running.")
    if session.status in _STOPPED:
        return
    if session.status != "active":
        raise NotResumable(f"The session is {session.status}; begin a turn to continue it.")
    if not (calls or awaited or _was_suspended(work)):
        raise NotResumable("The session is active and not suspended.")


def _was_suspended(work: UnitOfWork) -> bool:
    rows = models.Run.objects.using(work.connection.alias).filter(session_id=work.session.session_id)
    last = rows.filter(turn=work.session.turn_count).values_list("status", flat=True).first()
    return last is not None and last.startswith("suspended_")


def _check_answered(calls: Entries, awaited: Waits, with_message: bool) -> None:
    call_ids, unsettled = pending_calls.ids(pending_calls.unanswered(calls)), child_waits.waiting(awaited)
    if call_ids or unsettled:
        raise StillWaiting(tool_call_ids=call_ids, sub_session_ids=unsettled)
    approved = [call_id for call_id, entry in calls.items() if pending_calls.is_approved(entry)]
    if with_message and approved:
        raise StillWaiting(
            "Approved calls have no result yet: resume without a message, and append it after their results.",
            tool_call_ids=approved,
        )


def _activate(work: UnitOfWork) -> None:
    session = work.session
    work.event("session_resumed", {"resume_count": session.resume_count + 1})
    work.change(resume_count=session.resume_count + 1)
    if session.status == "active":
        work.change(**dict.fromkeys(statuses.CLEARED_ON_ACTIVE))
    else:
        statuses.enter(work, {"status": "active"})
    interrupts.clear(work)
    work.change(suspended_step_id=None, suspension_context=None)
    if session.pending_client_tool_calls is not None:
        work.change(**pending_calls.columns({}))
    if session.suspended_awaiting_children is not None:
        work.change(**child_waits.columns({}))


def _results(
    work: UnitOfWork, calls: Entries, awaited: Waits
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The tool messages to add, in the order of the calls, and the entries of approved calls.

    An open call that has no answer gets the result that `heal` would give it.
    """
    results: list[dict[str, Any]] = []
    approved: list[dict[str, Any]] = []
    left_calls, left_waits = dict(calls), dict(awaited)

    def consume(call_id: str) -> None:
        entry = left_calls.pop(call_id)
        if pending_calls.is_approved(entry):
            approved.append(pending_calls.approved_call(entry))
        else:
            results.append(pending_calls.result(call_id, entry))

    for call in open_calls.read(work.session.open_calls):
        if call.id in left_calls:
            consume(call.id)
        elif call.id in left_waits:
            results.append(child_waits.result(call.id, left_waits.pop(call.id), call.name))
        else:
            results.append(closing_message(call._asdict()))
    for call_id in list(left_calls):
        consume(call_id)
    results.extend(child_waits.result(call_id, wait, None) for call_id, wait in left_waits.items())
    return results, approved
