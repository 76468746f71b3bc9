"""One owner's work on one session: what was left behind is put right, then activity after activity."""

import threading
from dataclasses import dataclass
from typing import Any

from helix_sessions.exceptions import NotResumable, StillWaiting
from helix_sessions.runtime.loop.context_policy import Shown, Unavailable
from helix_sessions.runtime.loop.drivers import IO
from helix_sessions.runtime.loop.lease_keeper import Driven
from helix_sessions.runtime.loop.run_loop import Activity
from helix_sessions.store import SessionStore
from helix_sessions.types import InterruptRequest, Resumption, Run, RunOutcome, SessionState, Turn

IDLE = RunOutcome(kind="idle")

_STOPPED = ("interrupted", "paused")


def outcome_of(run: Run | None) -> RunOutcome:
    """The outcome of a drain as its last run tells it."""
    if run is None or run.status == "running":
        return RunOutcome(kind="idle", run=run)
    return RunOutcome(kind=run.status, run=run, output=run.output, error=run.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a drain ended."""

    outcome: RunOutcome
    looked_until: int = 0
    """Inputs that were admitted up to this event have been promoted, or are to stay pending."""


class Drain:
    """Drives one session under one lease."""

    def __init__(
        self,
        io: IO,
        store: SessionStore,
        agent: Any,
        driven: Driven,
        *,
        turn_limit: int,
        shown: Shown,
        closing: threading.Event,
        stale: InterruptRequest | None = None,
    ) -> None:
        """`stale`: a request to stop that was there before, and meant for somebody else."""
        self._io = io
        self._store = store
        self._agent = agent
        self._driven = driven
        self._key = driven.session_id
        self._turn_limit = turn_limit
        self._shown = shown
        self._closing = closing
        self._stale = stale

    async def run(self, *, forced: bool) -> Ended:
        """Work until nothing is left to do. `forced`: at least one turn."""
        outcome = IDLE
        opened: Activity | RunOutcome | None = None
        recovery = await self._io.db(self._store.recover_run, self._key)
        if recovery is None:
            await self._io.db(self._forget_stale_request)
        elif recovery.run is not None:
            opened = self._activity(recovery.run, mode="steer", forced=True, recovered=True)
        elif recovery.status in _STOPPED and not forced:
            return await self._stopped(outcome_of(recovery.ended))
        while True:
            try:
                if opened is None:
                    if not (forced or await self._has_inputs()):
                        return Ended(outcome=outcome)
                    await self._io.db(self._shown.before_promotion, self._store, self._key)
                    opened = await self._io.db(self._open, forced)
                if isinstance(opened, RunOutcome):
                    return await self._stopped(opened if forced else outcome)
                outcome, goes_on = await opened.run()
            except Unavailable as error:
                return await self._stopped(RunOutcome(kind="failed", error=str(error)))
            if not goes_on or self._closing.is_set() or await self._io.db(self._is_asked_to_stop):
                return await self._stopped(outcome)
            forced, opened = False, None

    async def _has_inputs(self) -> bool:
        return any((await self._io.db(self._store.count_inputs, self._key)).values())

    async def _stopped(self, outcome: RunOutcome) -> Ended:
        """What is pending now stays so; what is admitted from here on is looked at again."""
        head = await self._io.db(self._store.get_session_head, self._key)
        return Ended(outcome=outcome, looked_until=head.head_seq)

    def _is_asked_to_stop(self) -> bool:
        """Between two activities: the request is taken, and the next one is not opened."""
        return self._store.check_interrupt_flag(self._key) is not None or self._driven.stop.is_set()

    def _forget_stale_request(self) -> None:
        if self._stale is not None and self._store.peek_interrupt_flag(self._key) == self._stale:
            self._store.clear_interrupt_flag(self._key)

    def _open(self, forced: bool) -> Activity | RunOutcome:
        """Begin the next run, or say what the session waits for. One that goes on takes steers; only a new
        one takes from the queue."""
        state = self._store.load_state(self._key)
        last = next(iter(self._store.list_runs(self._key, limit=1).items), None)
        try:
            begun = self._begin(state, last)
        except StillWaiting:
            kind = last.status if last is not None and last.status.startswith("suspended_") else None
            return RunOutcome(kind=kind or "suspended_client_tool", run=last)
        steers = self._store.count_inputs(self._key)["steer"]
        if isinstance(begun, Resumption):
            return self._activity(begun.run, mode="steer", forced=True, approved=begun.approved)
        return self._activity(begun.run, mode="steer" if steers else "queue", forced=forced)

    def _activity(self, run: Run, **options: Any) -> Activity:
        return Activity(
            self._io,
            self._store,
            self._agent,
            self._driven,
            run,
            turn_limit=self._turn_limit,
            shown=self._shown,
            **options,
        )

    def _begin(self, state: SessionState, last: Run | None) -> Turn | Resumption:
        suspended = (
            state.pending_client_tool_calls
            or state.suspended_awaiting_children
            or (last is not None and last.status.startswith("suspended_"))
        )
        if suspended or state.status in _STOPPED:
            try:
                return self._store.resume(self._key)
            except NotResumable:
                pass
        return self._store.begin_turn(self._key)
