"""One owner's work on one session: what was left behind is put right, then run after run."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from django.utils import timezone

from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.exceptions import NotResumable, StillWaiting
from helix_sessions.messages.tool_ledger import ToolCall
from helix_sessions.runtime import budgets, errors
from helix_sessions.runtime.agents import Toolbox
from helix_sessions.runtime.budgets import Spent
from helix_sessions.runtime.loop.context_policy import ContextPolicy, ContextSettings, Unavailable
from helix_sessions.runtime.loop.durable import DurableJournal
from helix_sessions.runtime.loop.endings import ended_by_budget, ended_by_spend
from helix_sessions.runtime.loop.io import IO
from helix_sessions.runtime.loop.journal import OpenCalls, Waits
from helix_sessions.runtime.loop.lease_keeper import OwnedSession
from helix_sessions.runtime.loop.run_loop import Bounds, RunLoop
from helix_sessions.store import SessionStore
from helix_sessions.store.calls.resume import resume_driven
from helix_sessions.store.driving import boundaries, claims, trees
from helix_sessions.store.driving.boundaries import Ending
from helix_sessions.store.driving.driver import Driver, NothingToDo
from helix_sessions.store.driving.turn_log import TurnStart
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.limits import spend_checks
from helix_sessions.store.runs.interrupts import AskedToStop
from helix_sessions.store.sessions.recover import RECOVERS, recovery_policy
from helix_sessions.store.state.pending_calls import is_edited
from helix_sessions.types import OutcomeKind, Run, RunOutcome, SessionStatus

IDLE = RunOutcome(kind="idle")

_STOPPED = ("interrupted", "paused")
_CARRIED = ("spent", "since", "spawned")
"""What a run that goes on with another's activity takes from its metadata."""
_UNFINISHED = ("active", "paused")
"""The statuses in which what a person says is part of the activity; in others it begins the next."""
_GOES_ON = (errors.BUDGET_EXCEEDED, errors.SPEND_LIMIT)
"""The errors of a run whose activity goes on with the next."""
_LATER = timedelta(seconds=5)
"""How long a session is left alone whose context is not available."""


def outcome_of(run: Run | None) -> RunOutcome:
    """The outcome of a drive as its last run tells it."""
    if run is None or run.status == "running":
        return RunOutcome(kind="idle", run=run)
    return RunOutcome(kind=run.status, run=run, output=run.output, error=run.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run that is to be driven."""

    run: Run
    opened: int | None = None
    adopted: bool = False
    open_calls: OpenCalls | None = None


class SessionLoop:
    """Drives one session under one lease."""

    def __init__(
        self,
        io: IO,
        driver: Driver,
        agent: Any,
        owned: OwnedSession,
        *,
        bounds: Bounds,
        context: ContextSettings,
    ) -> None:
        self._io = io
        driver.own_budget = budgets.of_agent(agent)
        self._driver = driver
        self._agent = agent
        self._owned = owned
        self._bounds = bounds
        self._policy = ContextPolicy(context)
        self._outcome = IDLE
        """What became of the run that another owner left."""

    async def run(self, *, forced: bool) -> RunOutcome:
        """Work until nothing is left to do, and give the session back. `forced`: at least one turn."""
        await self._io.db(self._driver.load, to_run=not self._policy.has_sources)
        policy = recovery_policy(self._driver.known.row.agent_type)
        begun: Begun | RunOutcome | None = None
        if self._driver.known.row.attempts > conf.MAX_INTERRUPTED_ATTEMPTS:
            return await self._io.db(self._end_crash_loop)
        later = None if forced else _later(self._driver.known.row)
        if later is not None:
            await self._io.db(self._driver.release, at=later)
            return IDLE
        if self._driver.known.row.run_id is not None:
            begun = await self._io.db(self._pick_up, policy, forced)
        outcome = self._outcome
        wanted = forced or self._driver.known.row.run_requested
        while True:
            try:
                if begun is None:
                    begun = await self._io.db(self._begin, wanted)
            except Unavailable as error:
                await self._io.db(self._driver.release, at=timezone.now() + _LATER)
                return RunOutcome(kind="failed", error=str(error))
            if isinstance(begun, RunOutcome):
                if self._driver.lease is not None:
                    await self._io.db(self._driver.release)
                return begun if wanted or outcome is IDLE else outcome
            journal = DurableJournal(
                self._io,
                self._driver,
                self._owned,
                self._policy,
                self._agent,
                run=begun.run,
                opened=begun.opened,
                adopted=begun.adopted,
                open_calls=begun.open_calls,
                before=await self._io.db(self._spent_before, begun.run.metadata),
            )
            loop = RunLoop(self._io, self._agent, journal, self._owned.stop, self._bounds)
            try:
                ended = await loop.run()
            except Waits:
                return RunOutcome(kind="idle", run=begun.run)
            outcome = outcome_of(ended.run)
            if not ended.kept:
                return outcome
            wanted, begun = False, None

    def _pick_up(self, policy: str, forced: bool) -> Begun | RunOutcome | None:
        """Go on with the run under way: it waited for its next attempt, or its owner is gone."""
        driver, row = self._driver, self._driver.known.row
        if driver.owner_before is None and row.retry_attempt:
            claims.adopt_run(driver)
            return Begun(run=driver.running, adopted=True)
        if driver.owner_before is None and not forced:
            until = _patience(row.last_agent_activity_at)
            if until is not None:
                driver.release(at=until)
                return IDLE
        if policy == "leave" and not forced:
            driver.release(leave=True)
            return IDLE
        tools = Toolbox(self._agent)
        recovery = claims.recover_run(
            driver, "fail" if policy == "fail" and not forced else "wake", repeatable=tools.repeatable
        )
        if recovery is None:
            return None
        if recovery.run is not None:
            return Begun(run=recovery.run, open_calls=self._left_open(recovery.tries))
        self._outcome = outcome_of(recovery.ended)
        if recovery.status in _STOPPED or policy == "fail":
            return self._outcome if not forced else None
        return None

    def _spent_before(self, metadata: dict[str, Any]) -> Spent:
        """What an activity had used before a run with this metadata: what that says, and what the runs used
        that it goes on with, which failed, were stopped, or lost their owners."""
        store, key = _store(self._driver), self._driver.session_id
        spent = budgets.spent_of(metadata.get("spent"))
        if self._driver.definition.budget is None:
            return spent
        while (before := metadata.get(RECOVERS)) is not None:
            for event in store.get_events(key, types=["turn_finished"], run_id=before):
                seconds = event.data.get("duration_ms", 0) / 1000
                spent += budgets.spent(steps=1, usage=event.data.get("usage"), seconds=seconds)
            metadata = store.get_run(key, before).metadata
        return spent

    def _left_open(self, tries: Any) -> OpenCalls:
        """The calls that a dead process left open and that may be repeated."""
        if not tries:
            return OpenCalls()
        calls = claims.calls_left_open(self._driver, tries)
        return OpenCalls(calls=calls, tries=dict(tries))

    def _begin(self, wanted: bool) -> Begun | RunOutcome:
        """Begin the next run, or say what the session waits for."""
        driver, row = self._driver, self._driver.known.row
        overdue = row.next_deadline is not None and row.next_deadline <= timezone.now()
        if (row.awaiting_client and not overdue) or row.awaiting_children:
            return self._waits()
        last = driver.known.last_run
        waits = (row.pending_client_tool_calls, row.suspended_awaiting_children)
        suspended = any(map(documents.has_entries, waits))
        if row.status == "active" and last is not None and last.status.startswith("suspended_"):
            suspended = True
        stopped = row.status in _STOPPED and wanted and not row.pending_inputs
        if suspended or stopped:
            try:
                return self._resume()
            except NotResumable:
                pass
            except StillWaiting:
                return self._waits()
            except AskedToStop:
                driver.stop()
                return IDLE
        if not (wanted or row.pending_inputs):
            return IDLE
        self._policy.prepare(driver)
        if self._policy.has_sources:
            driver.reload()
        return self._open(wanted)

    def _open(self, wanted: bool) -> Begun | RunOutcome:
        driver = self._driver
        turn = TurnStart(number=1, model=driver.definition.model, most_steers=self._bounds.most_steers)
        # Who asks for a run has the turn run again that failed or was stopped; the queue comes afterwards.
        queued = bool(driver.known.queued())
        again = queued and wanted and claims.owes_answer(driver)
        metadata = self._carried(anew=queued and not again)
        refused = self._refused(metadata)
        if refused is not None:
            driver.begin(forced=True, turn=None, metadata=metadata)
            return outcome_of(boundaries.end(driver, refused, usage=None, turns=0).run)
        try:
            run = driver.begin(forced=wanted, turn=turn, metadata=metadata, takes_queued=not again)
        except NothingToDo:
            return IDLE
        except AskedToStop:
            driver.stop()
            return IDLE
        return Begun(run=run, opened=1)

    def _refused(self, metadata: dict[str, Any]) -> Ending | None:
        """How a run ends that nothing is left for: without a turn, and its inputs stay where they are."""
        driver = self._driver
        own = self._spent_before(metadata)
        tree = trees.measure(driver, metadata) if trees.is_part_of_tree(driver, metadata) else trees.Tree()
        why = budgets.reached_in_tree(driver.definition.budget, own, tree)
        if why is not None:
            return ended_by_budget(why, own)
        driver.ask_spend()
        overspent = spend_checks.reached(driver.spend)
        return ended_by_spend(overspent, own) if overspent else None

    def _carried(self, *, anew: bool = False) -> dict[str, Any]:
        """What the activity has used, if this run goes on with the one before. `anew`: a prompt begins it."""
        known = self._driver.known
        last = known.last_run
        if last is None or last.status == "completed" or anew:
            return {}
        carried = {name: value for name, value in last.metadata.items() if name in _CARRIED}
        exceeded = isinstance(last.error, dict) and last.error.get("code") in _GOES_ON
        goes_on = last.status.startswith("suspended_") or exceeded
        if known.steers() and not (goes_on and known.row.status in _UNFINISHED):
            return {}
        return carried if goes_on else {**carried, RECOVERS: last.run_id}

    def _resume(self) -> Begun:
        driver = self._driver
        self._policy.prepare(driver)
        metadata = self._carried()
        resumption = resume_driven(driver.store, driver.session_id, driver.stale_request)
        driver.resumed(resumption.run, metadata)
        calls: list[ToolCall] = [
            {
                "id": call["tool_call_id"],
                "name": call["tool_name"],
                "arguments": call["arguments"],
                "edited": is_edited(call),
            }
            for call in resumption.approved
        ]
        return Begun(run=driver.running, open_calls=OpenCalls(calls=calls))

    def _waits(self) -> RunOutcome:
        last = self._driver.known.last_run
        kind = last.status if last is not None and last.status.startswith("suspended_") else None
        run = None if last is None else _store(self._driver).get_run(self._driver.session_id, last.run_id)
        self._driver.release()
        return RunOutcome(kind=cast(OutcomeKind, kind or "suspended_client_tool"), run=run)

    def _end_crash_loop(self) -> RunOutcome:
        """The drivers before died, one after the other: the next one would too."""
        driver, row = self._driver, self._driver.known.row
        said = f"{row.attempts - 1} drivers died before they had committed a turn."
        error = errors.document(errors.CRASH_LOOP, said, attempt=int(row.attempts) - 1)
        status: SessionStatus = "failed" if row.parent_session_id is not None else "paused"
        recovery = None
        if row.run_id is not None:
            recovery = claims.recover_run(
                driver, "fail", error=error, failure_reason=errors.CRASH_LOOP, status=status
            )
        else:
            _store(driver).update_status(
                driver.session_id, status, error=error, failure_reason=errors.CRASH_LOOP
            )
            driver.reload()
        driver.release()
        return RunOutcome(kind="failed", run=None if recovery is None else recovery.ended, error=error)


def _later(row: SessionRow) -> datetime | None:
    """When a paused session is looked at again that is to run later by the clock of this machine: the clock
    of the database is ahead, and let it be taken. Not before the lease that was taken would have ended."""
    at: datetime | None = row.run_requested_at
    if row.status != "paused" or row.run_id is not None or at is None or at <= timezone.now():
        return None
    until: datetime = row.lease_expires_at
    return max(at, until)


def _patience(last_sign: Any) -> Any:
    """Until when a run without a lease is left to the process that began it; `None`: it is over."""
    if last_sign is None:
        return None
    until = last_sign + timedelta(seconds=conf.RUN_OWNER_TIMEOUT)
    return until if until > timezone.now() else None


def _store(driver: Driver) -> SessionStore:
    return driver.store  # type: ignore[return-value]
