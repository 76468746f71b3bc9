"""Recovers a run whose owner is gone, in one transaction.

It settles what the owner left, closes the run, and continues the session with the next run, ends it, or
leaves it waiting: a recovery that crashes itself has happened, or has not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helix_sessions import models
from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidDocument, InvalidWrites, NotConfigured
from helix_sessions.messages import errors
from helix_sessions.messages.repairs import LoggedEvent, answered
from helix_sessions.store.calls import children
from helix_sessions.store.engine import ids, inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import Transaction, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import interrupts, rescue, runs, sql
from helix_sessions.store.sessions import turns
from helix_sessions.store.state import checkpoints, snapshots, staging
from helix_sessions.types import (
    JSON,
    RECOVERIES,
    RECOVERY_POLICIES,
    CheckpointMeta,
    InterruptRequest,
    Recovery,
    RecoveryPolicy,
    Run,
    SessionStatus,
    StagedChange,
)
from helix_sessions.writes import apply_writes

OWNER_LOST = "owner_lost"
OWNER_IS_GONE = "The process that ran the session is gone."

RECOVERS = "recovers"
"""In the metadata of a run that goes on with another: that one's id."""


def recovery_policy(agent_type: str) -> str:
    """What `HELIX_SESSIONS["RECOVERY"]` says of a type of session."""
    policies = conf.RECOVERY
    policy = policies.get(agent_type, policies.get("*", "wake"))
    if policy not in RECOVERY_POLICIES:
        raise NotConfigured(f"RECOVERY of {agent_type!r} must be one of {', '.join(RECOVERY_POLICIES)}.")
    return str(policy)


def recover_run(
    store: Store,
    session_id: str,
    policy: RecoveryPolicy = "wake",
    *,
    run_id: str | None = None,
    repeatable: Mapping[str, int] | None = None,
    error: JSON = None,
    failure_reason: str = OWNER_LOST,
    status: SessionStatus = "failed",
) -> Recovery | None:
    """Settle a run that its owner left running; `None` if there is none.

    What `wake` does of calls and results is done. Staged writes of tools whose result was logged are
    promoted, others are forgotten. With the policy `wake` the session goes on with a new run where a
    model still owes an answer, and is completed where nothing is left to do; a request to stop is met.
    With `fail` run and session fail, or the session gets another `status`; `error` and `failure_reason`
    say why. A session whose status another caller has changed keeps it.

    `repeatable` are tools that may be executed again, each with how often: their calls stay open where
    attempts are left, for the next owner to repeat.
    """
    key = session_key(session_id)
    how = inputs.choice(policy, RECOVERIES, "The policy")
    next_id = ids.new_id() if run_id is None else inputs.identifier(run_id, "The run id")
    if store._read(key, ("run_id",)).run_id is None:
        return None
    with write_tree(store.using, store._lease) as tree:
        parent, work = children.lock_with_parent(tree, key, store._owner)
        store._check_head(work)
        if work.session.run_id is None:
            return None
        left = runs.find(store.using, key, work.session.run_id)
        prior_head: int = work.session.head_seq
        events = list(rescue.recent_events(work))
        promoted = _settle_staging(work, events)
        again = spared(events, repeatable or {}) if how == "wake" and _goes_on(work) else {}
        repaired = rescue.repair_calls(work, events, again)
        plan = _plan(work, left, how, repaired=repaired or bool(again))
        if plan.run_status == "failed":
            why = error or errors.document(OWNER_LOST, OWNER_IS_GONE)
            plan = replace(plan, error=why, reason=failure_reason, status=plan.status and status)
        given = {
            "status": plan.run_status,
            **({} if plan.error is None else inputs.error_columns(plan.error)),
        }
        ended = runs.advance(work, left, given, makes_room=plan.goes_on)
        work.event("session_woken", {"prior_head": prior_head})
        run = None
        if plan.goes_on:
            metadata = documents.write({**left.metadata, RECOVERS: left.run_id})
            run = turns.go_on(work, None, next_id, metadata, again)
        elif plan.status is not None:
            _end(tree, parent, work, plan.status, plan)
        if promoted:
            checkpoints.record(work, CheckpointMeta(step_id=promoted[-1], run_id=left.run_id), "staging")
    return Recovery(ended=ended, run=run, status=work.session.status, tries=again)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What becomes of the run and of the session; `None` leaves its status."""

    run_status: str
    status: str | None = None
    goes_on: bool = False
    error: JSON = None
    reason: str | None = None
    request: InterruptRequest | None = None


def _plan(work: UnitOfWork, left: Run, policy: str, *, repaired: bool) -> _Plan:
    session = work.session
    request = interrupts.clear(work)
    mine = session.status == "active"
    if policy == "fail":
        return _Plan(run_status="failed", status="failed" if mine else None)
    if request is not None and mine:
        return _Plan(run_status="interrupted", status="interrupted", request=request)
    if not mine or turns.is_waiting(work):
        return _Plan(run_status="interrupted")
    if _is_owed(work, left, repaired=repaired):
        return _Plan(run_status="interrupted", goes_on=True)
    if session.pending_inputs:
        return _Plan(run_status="interrupted")
    return _Plan(run_status="completed", status="completed")


def _end(tree: Transaction, parent: UnitOfWork | None, work: UnitOfWork, status: str, plan: _Plan) -> None:
    columns: dict[str, Any] = {"status": status}
    if plan.reason is not None:
        columns.update(**inputs.error_columns(plan.error), failure_reason=plan.reason)
    if plan.request is not None:
        columns["interrupt_context"] = documents.write({"reason": plan.request.reason})
    children.enter(tree, parent, work, columns)
    if plan.request is not None:
        # Input after the request to stop is new, however late the request was taken.
        work.change(status_since=plan.request.requested_at)


def _is_owed(work: UnitOfWork, left: Run, *, repaired: bool) -> bool:
    """Whether a model has to speak: it was told something, or a run was asked for that said nothing yet."""
    session = work.session
    since = _end_of_the_run_before(work, left)
    last = fetch(work.connection, sql.LAST_WORD, [session.session_id, session.message_count])
    role, seq = last[0] if last else ("assistant", 0)
    if repaired or (role != "assistant" and seq > since):
        return True
    if role == "assistant" and seq > left.start_sequence:
        return False
    if RECOVERS in left.metadata:
        return True
    # It was opened for an input, which is still there, or was taken back; or else for its own sake.
    taken_back = models.Input.objects.using(work.connection.alias).filter(
        session_id=session.session_id, cancelled_seq__gt=since
    )
    return not (session.pending_inputs or taken_back.exists())


def _goes_on(work: UnitOfWork) -> bool:
    """Whether nothing keeps the locked session from going on with what was left open."""
    session = work.session
    return bool(
        session.status == "active" and session.interrupt_requested_at is None and not turns.is_waiting(work)
    )


def spared(events: Sequence[LoggedEvent], repeatable: Mapping[str, int]) -> dict[str, int]:
    """The calls without a result whose tools may be executed once more, each with how often they were."""
    tried: dict[str, tuple[str, int]] = {}
    for event in events:
        data = event.data if isinstance(event.data, dict) else {}
        call_id = data.get("tool_call_id")
        if event.type in ("tool_called", "tool_retried") and isinstance(call_id, str):
            tried[call_id] = str(data.get("tool_name")), tried.get(call_id, ("", 0))[1] + 1
        elif event.type in ("tool_responded", "tool_error", "tool_message") and isinstance(call_id, str):
            tried.pop(call_id, None)
        elif event.type == "messages_truncated":
            tried.clear()
    return {call_id: times for call_id, (name, times) in tried.items() if times <= repeatable.get(name, 0)}


def _end_of_the_run_before(work: UnitOfWork, run: Run) -> int:
    rows = models.Run.objects.using(work.connection.alias).filter(session_id=run.session_id)
    return rows.filter(turn=run.turn - 1).values_list("end_sequence", flat=True).first() or 0


def _settle_staging(work: UnitOfWork, events: Sequence[LoggedEvent]) -> list[str]:
    """Promote the writes of tools whose result was logged and of turns that were said, and forget the others;
    the steps that were promoted. Writes that cannot be applied are forgotten with those of their step."""
    session = work.session
    if not session.staged_count:
        return []
    steps: dict[str, list[StagedChange]] = {}
    changes = staging.staged(work.connection.alias, session.session_id)
    done, said = answered(events), _said(work, {change.step_id for change in changes})
    for change in changes:
        own = change.tool_call_id == change.step_id
        if change.step_id in said if own else change.tool_call_id in done:
            steps.setdefault(change.step_id, []).append(change)
    before = snapshots.read(work.connection, session.session_id, session.state_base, session.state_number)
    custom, text = before, ""
    promoted: list[str] = []
    for step_id, kept in steps.items():
        try:
            applied = custom
            for change in kept:
                applied = apply_writes(applied, change.writes)
            text = documents.dump(applied)
        except (InvalidWrites, InvalidDocument):
            continue
        custom = applied
        staging.tell(work, step_id, kept)
        promoted.append(step_id)
    staging.discard(work)
    if promoted:
        snapshots.record(work, custom, text, before=before)
    return promoted


def _said(work: UnitOfWork, step_ids: set[str]) -> set[str]:
    """Those of the steps whose message is in the log."""
    rows = models.Event.objects.using(work.connection.alias).filter(
        session_id=work.session.session_id,
        seq__gt=work.session.head_seq - rescue.EVENTS_LOOKED_AT,
        type="assistant_message",
        turn_id__in=step_ids,
    )
    return {step_id for step_id in rows.values_list("turn_id", flat=True) if step_id is not None}
