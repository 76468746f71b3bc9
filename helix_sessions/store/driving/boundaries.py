"""The boundary of a step: its commit and what follows from it, decided in one write.

A request to stop ends the run. Otherwise it goes on while tools were called or steers wait, within limits,
and then ends, and its session with it. Whether the session has more to do is seen in the same write that
gives it back, so that no input is left behind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidDocument, InvalidWrites
from helix_sessions.store.calls import children
from helix_sessions.store.driving.driver import Driver, Family, NeedsFamily, give_back
from helix_sessions.store.driving.knowledge import Knowledge
from helix_sessions.store.driving.turn_log import TurnStart, start_turn
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import interrupts, runs, statuses, usages
from helix_sessions.store.state import checkpoints, runnable, snapshots, staging
from helix_sessions.types import TERMINAL_STATUSES, CheckpointMeta, Run, RunStatus
from helix_sessions.values.agents import AgentDefinition
from helix_sessions.writes import apply_writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a turn comes to."""

    turn_id: str
    number: int
    messages: Sequence[Mapping[str, Any]] = ()
    writes: Sequence[Any] = ()
    """What the turn itself writes, where none of it was staged."""
    usage: Any = None
    """What is not counted yet."""
    finished: Mapping[str, Any] | None = None
    """The data of `turn_finished`; `None`: it is no turn of a model."""
    discard: bool = False
    """What it staged is forgotten."""
    rulings: Sequence[Mapping[str, Any]] = ()
    """The data of `tool_result_submitted` for calls that a tool rule decided on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ends, and its session."""

    status: RunStatus
    output: Any = None
    error: Any = None
    failure_reason: str | None = None
    session_status: str | None = None
    """Where it is another than the run's."""
    goes_on: bool = False
    """The next input that is queued opens the next run."""
    carried: Mapping[str, Any] | None = None
    """What the activity has used, for the run that goes on with it."""
    run_at: datetime | None = None
    """When the session is to run again; that counts as asked for."""
    failed_call: Mapping[str, Any] | None = None
    """The call of the model that failed: `turn_id`, and the data of `model_call_failed`."""


Limit = Callable[[AgentDefinition], Ending | None]
"""The ending that a limit makes, if it is reached, of a session whose agent is defined like this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What follows a step."""

    ending: Ending | None = None
    """How the run ends unless steers wait; `None`: tools were called, and the model is told the results."""
    turn: TurnStart | None = None
    """The next turn, to begin in the same write; `None`: it is begun by itself."""
    limit: Limit | None = None
    closing: bool = False
    """This process takes nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a run at a boundary."""

    run: Run | None = None
    """The run, if it ended."""
    kept: bool = False
    """The session has more to do, and is still this driver's."""
    opened: bool = False
    """The next turn has begun."""


INTERRUPTED = Ending(status="interrupted")


def commit(driver: Driver, step: Step, following: Next, *, usage: Any, turns: int) -> Outcome:
    """Commit a step, and decide what follows. Writes that cannot be applied raise, and nothing is written."""

    def decide(work: UnitOfWork, known: Knowledge, family: Family | None) -> Outcome:
        source = put(driver, work, known, step)
        ending = _ending(driver, work, known, following)
        if ending is not None:
            used = _Used(usage, turns, following.closing, step.turn_id)
            outcome = _end(driver, work, known, family, ending, used)
            record(work, step, source)
            return outcome
        record(work, step, source)
        if following.turn is None:
            return Outcome()
        taken = known.steers()[: following.turn.most_steers]
        driver._promote(work, known, taken)
        start_turn(work, driver.running.run_id, following.turn)
        work.asks_spend = True
        return Outcome(opened=True)

    return _learn(driver, driver.write_in_tree(decide))


def end(
    driver: Driver,
    ending: Ending,
    *,
    usage: Any,
    turns: int,
    turn_id: str | None = None,
    step: Step | None = None,
) -> Outcome:
    """End the run in a turn, if one has begun, with a last step if there is one."""

    def decide(work: UnitOfWork, known: Knowledge, family: Family | None) -> Outcome:
        source = None if step is None else put(driver, work, known, step)
        outcome = _end(driver, work, known, family, ending, _Used(usage, turns, True, turn_id))
        if step is not None and source is not None:
            record(work, step, source)
        return outcome

    return _learn(driver, driver.write_in_tree(decide))


def _learn(driver: Driver, outcome: Outcome) -> Outcome:
    if outcome.run is not None:
        driver.run = None
        if not outcome.kept:
            driver.lease = None
    return outcome


def _ending(driver: Driver, work: UnitOfWork, known: Knowledge, following: Next) -> Ending | None:
    if work.session.interrupt_requested_at is not None:
        return INTERRUPTED
    if following.ending is not None and (following.ending.status != "completed" or not known.steers()):
        return following.ending
    return None if following.limit is None else following.limit(known.defined(driver.own_budget))


def put(driver: Driver, work: UnitOfWork, known: Knowledge, step: Step) -> str:
    """Commit a step to the session as it is now, all but its checkpoint; that one's source."""
    session = work.session
    for message in step.messages:
        driver.append(work, message, turn_id=step.turn_id if message["role"] == "assistant" else None)
    for ruling in step.rulings:
        work.event("tool_result_submitted", dict(ruling), turn_id=step.turn_id)
    usages.add(work, step.usage)
    promoted = False
    if step.discard:
        staging.discard_step(work, step.turn_id)
    elif session.staged_count or step.writes:
        before = known.custom
        custom, changes = staging.promote(work, before, step.turn_id)
        promoted = bool(changes)
        custom = apply_writes(custom, step.writes)
        snapshots.record(work, custom, documents.dump(custom), before=before)
        known.custom = custom
    work.change(step_count=session.step_count + 1)
    if session.attempts > 1:
        work.change(attempts=1)
    if session.retry_attempt:
        work.change(retry_attempt=0)
    work.event("state_saved", {"step_count": session.step_count})
    if step.finished is not None:
        work.event("turn_finished", text=documents.dump(dict(step.finished)), turn_id=step.turn_id)
    return "staging" if promoted else "save"


def record(work: UnitOfWork, step: Step, source: str) -> None:
    run_id = step.turn_id.rpartition(":")[0]
    checkpoints.record(work, CheckpointMeta(step_id=step.turn_id, run_id=run_id), source)


def carried(run: Run, spent: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a run whose activity goes on in another: since when, and what was used so far."""
    since = run.metadata.get("since") or run.started_at.isoformat()
    return {**run.metadata, "since": since, "spent": dict(spent)}


class _Used(NamedTuple):
    """What a run has used, whether its process takes nothing more, and the turn it is in."""

    usage: Any
    turns: int
    closing: bool
    turn_id: str | None


def _end(
    driver: Driver,
    work: UnitOfWork,
    known: Knowledge,
    family: Family | None,
    ending: Ending,
    used: _Used,
) -> Outcome:
    session = work.session
    if ending.failed_call is not None:
        data = dict(ending.failed_call)
        work.event("model_call_failed", turn_id=data.pop("turn_id"), text=documents.dump(data))
    columns: dict[str, Any] = {"status": ending.status, "step_count": used.turns}
    for name, value in (("output", ending.output), ("usage", used.usage)):
        if value is not None:
            columns[name] = documents.dump(value)
    if ending.error is not None:
        columns.update(inputs.error_columns(ending.error))
    if ending.carried is not None:
        columns["metadata"] = documents.dump(carried(driver.running, ending.carried))
    # What it used was counted turn by turn.
    run = runs.advance(work, replace(driver.running, usage=used.usage), columns, turn_id=used.turn_id)
    request = interrupts.clear(work) if ending.status == "interrupted" else None
    if session.status == "active":
        _end_session(work, family, ending, None if request is None else request.reason)
    if session.retry_attempt and ending.status != "interrupted":
        work.change(retry_attempt=0)
    more = bool(session.pending_inputs) and (ending.status == "completed" or ending.goes_on)
    if session.status in TERMINAL_STATUSES and not more and session.parent_session_id is not None:
        if family is None:
            raise NeedsFamily
        if family.parent is not None:
            children.tell_parent(family.parent, children.outcome_of(work))
    known.last_run = None
    if more and not used.closing:
        return Outcome(run=run, kept=True)
    give_back(work)
    if more:
        runnable.ask(work)
    return Outcome(run=run)


def _end_session(work: UnitOfWork, family: Family | None, ending: Ending, reason: str | None) -> None:
    status = ending.session_status or ending.status
    if status == "paused" and work.session.parent_session_id is not None:
        status = ending.status  # no driver goes on with a child that its parent waits for
    columns: dict[str, Any] = {"status": status}
    if ending.output is not None:
        columns["output"] = documents.dump(ending.output)
    if ending.error is not None:
        columns.update(inputs.error_columns(ending.error))
    if ending.failure_reason is not None:
        columns["failure_reason"] = ending.failure_reason
    if ending.status == "interrupted":
        columns["interrupt_context"] = documents.write({"reason": reason})
    if status in children.STOPS_CHILDREN and family is None:
        raise NeedsFamily
    statuses.enter(work, columns)
    if ending.run_at is not None and status == "paused":
        runnable.request(work, ending.run_at)
    if status in children.STOPS_CHILDREN and family is not None:
        children.interrupt_below(family.tree, work, f"parent_{status}")


REFUSED = (InvalidWrites, InvalidDocument)
