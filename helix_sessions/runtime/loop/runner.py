"""The runner: one drain per session across all processes, different sessions side by side."""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, cast

from helix_sessions.exceptions import Fenced, HelixSessionsError, InvalidInput, LeaseHeld, SessionNotFound
from helix_sessions.runtime.loop.context_policy import Shown
from helix_sessions.runtime.loop.drivers import IO, Inline, OnLoop, finished
from helix_sessions.runtime.loop.lease_keeper import Driven, keeper
from helix_sessions.runtime.loop.session_loop import IDLE, Drain, Ended, outcome_of
from helix_sessions.runtime.loop.sweeps import Sweep, Unattended
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.types import Lease, Run, RunOutcome

_log = logging.getLogger("helix_sessions.runner")

_driving: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("helix_sessions_driving", default=())
"""The sessions around the code that is running: a tool cannot wait for the session it is a tool of."""

_SHORTEST_LOOK, _LONGEST_LOOK = 0.01, 0.5


class SessionRunner:
    """Drives sessions with an agent. Any number of runners in any processes may be given the same session:
    one drives it, and the others wait for it or go away."""

    def __init__(
        self,
        agent: Any,
        *,
        store: SessionStore | AsyncSessionStore | None = None,
        owner: str | None = None,
        lease_ttl: float = 30,
        turn_limit: int = 25,
        sources: Sequence[Any] = (),
        compaction: Any = None,
        summarize: Any = None,
        agent_types: Collection[str] | None = None,
    ) -> None:
        """`agent_types`: the types of sessions a sweep takes; `None` is all."""
        if isinstance(turn_limit, bool) or not isinstance(turn_limit, int) or turn_limit < 1:
            raise InvalidInput("turn_limit must be a number of at least 1.")
        if isinstance(lease_ttl, bool) or not isinstance(lease_ttl, int | float) or not lease_ttl > 0:
            raise InvalidInput("lease_ttl must be a number of seconds above 0.")
        self.agent = agent
        self.store = _sync(store)
        self.owner = owner or f"{socket.gethostname()[:100]}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
        self.lease_ttl = lease_ttl
        self.turn_limit = turn_limit
        self.agent_types = None if agent_types is None else frozenset(agent_types)
        self._shown = Shown(sources, compaction, summarize)
        self._closing = threading.Event()

    def run(self, session_id: str) -> RunOutcome:
        """Run at least one turn, or wait for the drain that is under way and share its outcome."""
        return finished(self._drive(Inline(), session_id, forced=True))

    async def arun(self, session_id: str) -> RunOutcome:
        """`run`, awaited."""
        return await self._drive(OnLoop(), session_id, forced=True)

    def wake(self, session_id: str) -> RunOutcome:
        """Run if an input can be promoted. While a drain is under way this only makes it look once more."""
        return finished(self._drive(Inline(), session_id, forced=False))

    async def awake(self, session_id: str) -> RunOutcome:
        """`wake`, awaited."""
        return await self._drive(OnLoop(), session_id, forced=False)

    def interrupt(
        self, session_id: str, reason: str | None = None, timeout: float | None = None
    ) -> RunOutcome:
        """Ask whoever drives the session, in whatever process, to stop, and wait until it has cleaned up.

        The inbox is kept. Nobody drives it, or there is none: nothing happens. After `timeout` seconds
        the run is returned as it is then, still running, with an error that says so.
        """
        return finished(self._interrupt(Inline(), session_id, reason, timeout))

    async def ainterrupt(
        self, session_id: str, reason: str | None = None, timeout: float | None = None
    ) -> RunOutcome:
        """`interrupt`, awaited."""
        return await self._interrupt(OnLoop(), session_id, reason, timeout)

    def sweep(self) -> int:
        """Wake sessions whose inputs nobody attends to, and treat runs whose owner is gone as
        `HELIX_SESSIONS["RECOVERY"]` says; how many sessions that were."""
        return finished(self._sweep(Inline()))

    async def asweep(self) -> int:
        """`sweep`, awaited."""
        return await self._sweep(OnLoop())

    def attend(self, found: Unattended) -> RunOutcome:
        """Do what a sweep does about one session."""
        return finished(self._attend(Inline(), found))

    def close(self) -> None:
        """Open no more activities. Those under way go on."""
        self._closing.set()

    async def _drive(self, io: IO, session_id: str, *, forced: bool, recover: bool = False) -> RunOutcome:
        place = (self.store.using, session_id)
        if forced and place in _driving.get():
            raise InvalidInput(f"The session {session_id!r} cannot wait for itself.")
        outcome: RunOutcome | None = None
        while True:
            driven = Driven(store=self.store, session_id=session_id, lease_ttl=self.lease_ttl)
            other = keeper.enter(driven)
            if other is not driven:
                if not forced:
                    return outcome or IDLE
                shared = await _joined(io, other)
            else:
                ended: Ended | None = None
                try:
                    ended = await self._attempt(io, driven, forced=forced, recover=recover)
                finally:
                    keeper.leave(driven, ended.outcome if ended is not None else None)
                if ended is not None:
                    if ended.outcome is not IDLE or outcome is None:
                        outcome = ended.outcome
                    if self._closing.is_set() or not await self._has_inputs(io, session_id, ended):
                        return outcome
                    forced = False  # somebody was told of a drain under way, and counts on one more look
                    continue
                if not forced:
                    return outcome or IDLE
                shared = await self._wait_for_owner(io, session_id)
            if shared is not None:
                return shared

    async def _attempt(self, io: IO, driven: Driven, *, forced: bool, recover: bool) -> Ended | None:
        """Drive the session, unless another process does: `None`."""
        key = driven.session_id
        flag = await io.db(self.store.peek_interrupt_flag, key)
        if not (forced or recover) and not any((await io.db(self.store.count_inputs, key)).values()):
            return Ended(outcome=IDLE)
        try:
            lease: Lease = await io.db(self.store.acquire_lease, key, self.owner, self.lease_ttl)
        except LeaseHeld:
            return None
        keeper.keep(driven, lease)
        token = _driving.set((*_driving.get(), driven.place))
        store = self.store.fenced(lease)
        try:
            drain = Drain(
                io,
                store,
                self.agent,
                driven,
                turn_limit=self.turn_limit,
                shown=self._shown,
                closing=self._closing,
                stale=flag,
            )
            ended = await drain.run(forced=forced)
        except Fenced:
            return None
        except GeneratorExit:  # the loop is gone, and nothing can be awaited any more
            raise
        except BaseException:
            keeper.let_go(driven)
            await io.db(self._hand_over, lease)
            raise
        finally:
            _driving.reset(token)
            keeper.let_go(driven)
        with suppress(Fenced, SessionNotFound):
            await io.db(store.release_lease, lease)
        return ended

    def _hand_over(self, lease: Lease) -> None:
        """Let the lease be over now, so that the next sweep of anybody takes the run."""
        try:
            self.store.renew_lease(lease, 0)
        except Exception:
            _log.info("The lease of session %r runs out by itself.", lease.session_id)

    async def _has_inputs(self, io: IO, session_id: str, ended: Ended) -> bool:
        try:
            counts = await io.db(self.store.count_inputs, session_id, after=ended.looked_until)
        except SessionNotFound:
            return False
        return any(counts.values()) and not await io.db(self._waits, session_id)

    def _waits(self, session_id: str) -> bool:
        """Whether the session waits for answers, so that nothing can be promoted."""
        state = self.store.load_state(session_id)
        return bool(state.pending_client_tool_calls or state.suspended_awaiting_children)

    async def _wait_for_owner(self, io: IO, session_id: str) -> RunOutcome | None:
        """The outcome of a drain in another process; `None` if its owner is gone."""
        pause = _SHORTEST_LOOK
        while (lease := await io.db(self.store.get_lease, session_id)) is not None:
            if not await io.db(self.store.is_lease_live, lease):
                return None
            await io.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_LOOK)
        return outcome_of(await io.db(self._last_run, session_id))

    async def _interrupt(
        self, io: IO, session_id: str, reason: str | None, timeout: float | None
    ) -> RunOutcome:
        deadline = None if timeout is None else time.monotonic() + timeout
        here = keeper.find(self.store.using, session_id)
        try:
            lease = await io.db(self.store.get_lease, session_id)
            if here is None and (lease is None or not await io.db(self.store.is_lease_live, lease)):
                return IDLE
            await io.db(self.store.set_interrupt_flag, session_id, reason)
            if here is not None:
                here.stop.set()
            pause = _SHORTEST_LOOK
            while await self._is_driven(io, session_id, here, lease):
                if deadline is not None and time.monotonic() >= deadline:
                    run = await io.db(self._last_run, session_id)
                    return RunOutcome(kind="interrupted", run=run, error="It has not stopped in time.")
                await io.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_LOOK)
            await io.db(self._forget_request, session_id)
            if here is not None and here.outcome is not None:
                return here.outcome
            return outcome_of(await io.db(self._last_run, session_id))
        except SessionNotFound:
            return IDLE

    def _forget_request(self, session_id: str) -> None:
        """It ended before it saw the request. A run whose owner is gone is still to stop."""
        seen = self.store.peek_interrupt_flag(session_id) is None
        if not seen and self.store.get_current_run(session_id) is None:
            self.store.clear_interrupt_flag(session_id)

    async def _is_driven(self, io: IO, session_id: str, here: Driven | None, before: Lease | None) -> bool:
        if here is not None:
            return not here.done.is_set()
        lease = await io.db(self.store.get_lease, session_id)
        if lease is None or before is None:
            return False
        if (lease.fence, lease.token) != (before.fence, before.token):
            return False
        return await io.db(self.store.is_lease_live, lease)

    def _last_run(self, session_id: str) -> Run | None:
        return next(iter(self.store.list_runs(session_id, limit=1).items), None)

    async def _sweep(self, io: IO) -> int:
        swept = 0
        for found in await io.db(Sweep(self.store, self.agent_types).find):
            try:
                await self._attend(io, found)
                swept += 1
            except HelixSessionsError:
                _log.exception("Session %r could not be swept.", found.session_id)
        return swept

    async def _attend(self, io: IO, found: Unattended) -> RunOutcome:
        if found.policy == "fail":
            return await io.db(self._fail, found.session_id)
        return await self._drive(io, found.session_id, forced=False, recover=found.abandoned)

    def _fail(self, session_id: str) -> RunOutcome:
        try:
            lease = self.store.acquire_lease(session_id, self.owner, self.lease_ttl)
        except LeaseHeld:
            return IDLE
        try:
            recovery = self.store.fenced(lease).recover_run(session_id, "fail")
        except BaseException:
            self._hand_over(lease)
            raise
        with suppress(Fenced, SessionNotFound):
            self.store.release_lease(lease)
        return IDLE if recovery is None else outcome_of(recovery.ended)


def _sync(store: SessionStore | AsyncSessionStore | None) -> SessionStore:
    if isinstance(store, AsyncSessionStore):
        return cast(SessionStore, vars(store)["_store"])
    return store or SessionStore()


async def _joined(io: IO, other: Driven) -> RunOutcome | None:
    """The outcome of a drain in this process; `None` if it came to nothing."""
    pause = _SHORTEST_LOOK
    while not other.done.is_set():
        await io.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_LOOK / 10)
    return other.outcome
