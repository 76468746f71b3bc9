"""The runner: one drive per session across all processes, different sessions side by side."""

import asyncio
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Collection, Sequence
from typing import Any, cast

from helix_sessions.conf import conf
from helix_sessions.exceptions import (
    Fenced,
    HelixSessionsError,
    InvalidInput,
    LeaseHeld,
    NotConfigured,
    NotFound,
    SessionBusy,
    SessionMoved,
    SessionNotFound,
)
from helix_sessions.runtime.agents import Agent, NamedAgent, driven
from helix_sessions.runtime.loop.context_policy import ContextSettings
from helix_sessions.runtime.loop.io import IO, Inline, OnLoop, finished
from helix_sessions.runtime.loop.lease_keeper import OwnedSession, driving, keeper
from helix_sessions.runtime.loop.run_loop import Bounds, HandedOver
from helix_sessions.runtime.loop.session_loop import IDLE, SessionLoop, outcome_of
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.store.calls.stops import interrupt_waiting
from helix_sessions.store.driving import claims
from helix_sessions.store.driving.driver import Driver
from helix_sessions.store.engine.claiming import NoShare
from helix_sessions.store.engine.operation import operation
from helix_sessions.types import Lease, RetryPolicy, Run, RunOutcome
from helix_sessions.values.agents import value_of

_log = logging.getLogger("helix_sessions.runner")

LEASE_SECONDS = 30.0
"""How long a lease lasts that is not renewed."""

_AFTER_ERROR_SECONDS = 1.0
"""How long a session is left alone that could not be driven."""

_SHORTEST_LOOK, _LONGEST_LOOK = 0.01, 0.5

claim_next = operation(claims.claim_next)
claim_session = operation(claims.claim_session)


class SessionRunner:
    """Drives sessions with an agent. Any number of runners in any processes may be given the same session:
    one drives it, and the others wait for it or go away."""

    def __init__(
        self,
        agent: Agent | NamedAgent | None,
        *,
        store: SessionStore | AsyncSessionStore | None = None,
        owner: str | None = None,
        lease_ttl: float = LEASE_SECONDS,
        turn_limit: int = 25,
        retry: RetryPolicy | None = None,
        turn_timeout: float | None = None,
        sources: Sequence[Any] = (),
        compaction: Any = None,
        summarize: Any = None,
        agent_types: Collection[str] | None = None,
    ) -> None:
        """`agent_types`: the types of sessions a sweep takes; `None` is all."""
        if isinstance(turn_limit, bool) or not isinstance(turn_limit, int) or turn_limit < 1:
            raise InvalidInput("turn_limit must be a number of at least 1.")
        _check_seconds(lease_ttl, "lease_ttl")
        if turn_timeout is not None:
            _check_seconds(turn_timeout, "turn_timeout")
        self.agent = None if agent is None else driven(agent)
        self.store = _sync(store)
        self.owner = owner or new_owner()
        self.lease_ttl = lease_ttl
        self.turn_limit = turn_limit
        self.retry = RetryPolicy() if retry is None else value_of(RetryPolicy, retry)
        self.turn_timeout = turn_timeout
        self.agent_types = None if agent_types is None else frozenset(agent_types)
        self._context = ContextSettings(sources, compaction, summarize)
        self._closing = threading.Event()

    def run(self, session_id: str) -> RunOutcome:
        """Ask for a run and drive it here, at least one turn; or wait for the drive that is under way and
        share its outcome."""
        return finished(self._drive(Inline(), session_id, forced=True))

    async def arun(self, session_id: str) -> RunOutcome:
        """`run`, awaited."""
        return await self._drive(OnLoop(), session_id, forced=True)

    def wake(self, session_id: str) -> RunOutcome:
        """Run if there is something to do: an input can be promoted, all that the session waited for is
        answered, a run was asked for, or was left by an owner that is gone. While a drive is under way this
        only makes it look once more."""
        return finished(self._drive(Inline(), session_id, forced=False))

    async def awake(self, session_id: str) -> RunOutcome:
        """`wake`, awaited."""
        return await self._drive(OnLoop(), session_id, forced=False)

    def interrupt(
        self, session_id: str, reason: str | None = None, timeout: float | None = None
    ) -> RunOutcome:
        """Ask the driver of the session, in any process, to stop, and wait until it has cleaned up.

        The inbox is kept. One that waits for a person, a client or sub-agents is stopped at once, and its
        sub-agents with it. An idle or missing session is left as it is. After `timeout` seconds the run is
        returned as it is then, still running, with an error that says so.
        """
        return finished(self._interrupt(Inline(), session_id, reason, timeout))

    async def ainterrupt(
        self, session_id: str, reason: str | None = None, timeout: float | None = None
    ) -> RunOutcome:
        """`interrupt`, awaited."""
        return await self._interrupt(OnLoop(), session_id, reason, timeout)

    def sweep(self) -> int:
        """Drive every runnable session without a driver; return how many there were."""
        return finished(self._sweep(Inline()))

    async def asweep(self) -> int:
        """`sweep`, awaited."""
        return await self._sweep(OnLoop())

    def claim(self) -> Driver | None:
        """Take the next session that is runnable, to be driven by `drive_claimed` in this thread."""
        return claim_next(self.store, self.owner, self.lease_ttl, agent_types=self.agent_types)

    def claim_due(self, session_id: str) -> Driver | None:
        """Take this session, if it is runnable and may run now."""
        bounded = not driving.get()
        try:
            return claim_session(
                self.store, session_id, self.owner, self.lease_ttl, due=True, bounded=bounded
            )
        except (LeaseHeld, NoShare):
            return None

    def drive_claimed(self, driver: Driver) -> RunOutcome:
        """Drive a session that was claimed."""
        return finished(self._drive_claimed(Inline(), driver))

    def close(self) -> None:
        """Begin no more runs. Those under way go on."""
        self._closing.set()

    async def _drive(self, io: IO, session_id: str, *, forced: bool) -> RunOutcome:
        place = (self.store.using, session_id)
        pause = _SHORTEST_LOOK
        if forced and place in driving.get():
            raise InvalidInput(f"The session {session_id!r} cannot wait for itself.")
        outcome: RunOutcome | None = None
        while True:
            owned = self._owned(session_id)
            other = keeper.enter(owned, knocks=not forced)
            if other is not owned:
                if not forced:
                    return outcome or IDLE
                shared = await _joined(io, other)
            else:
                found: RunOutcome | None = None
                knocked = False
                try:
                    found = await self._attempt(io, owned, forced=forced)
                except NoShare:
                    if not forced or self._closing.is_set():
                        return outcome or IDLE  # it is runnable, and taken up when it may run
                    pause = min(pause * 1.5, _LONGEST_LOOK)
                    await io.sleep(pause)
                    continue
                finally:
                    knocked = keeper.leave(owned, found)
                if found is not None:
                    if found is not IDLE or outcome is None:
                        outcome = found
                    if self._closing.is_set() or not knocked:
                        return outcome
                    forced = False  # a caller was told of a drive under way, and counts on one more look
                    continue
                if not forced:
                    return outcome or IDLE
                shared = await self._wait_for_owner(io, session_id)
            if shared is not None:
                return shared

    async def _attempt(self, io: IO, owned: OwnedSession, *, forced: bool) -> RunOutcome | None:
        """Claim the session and drive it, unless another process does: `None`."""
        try:
            driver = await io.db(
                claim_session,
                self.store,
                owned.session_id,
                self.owner,
                self.lease_ttl,
                forced=forced,
                bounded=not driving.get(),
            )
        except LeaseHeld:
            return None
        return IDLE if driver is None else await self._own(io, owned, driver, forced=forced)

    async def _drive_claimed(self, io: IO, driver: Driver) -> RunOutcome:
        owned = self._owned(driver.session_id)
        if keeper.enter(owned) is not owned:  # its lease ran out here, and it was claimed again
            await io.db(driver.release)
            return IDLE
        outcome: RunOutcome | None = None
        try:
            outcome = await self._own(io, owned, driver, forced=False)
        finally:
            knocked = keeper.leave(owned, outcome)
        if knocked and not self._closing.is_set():
            later = await self._drive(io, driver.session_id, forced=False)
            outcome = outcome if later is IDLE else later
        return outcome or IDLE

    async def _own(self, io: IO, owned: OwnedSession, driver: Driver, *, forced: bool) -> RunOutcome | None:
        """Drive a session under its lease; `None`: another owner has it now."""
        lease = cast(Lease, driver.lease)
        owned.stale_request = driver.stale_request
        keeper.keep(owned, lease)
        token = driving.set((*driving.get(), owned.place))
        bounds = Bounds(
            turn_limit=self.turn_limit,
            retry=self.retry,
            turn_timeout=self.turn_timeout,
            most_steers=conf.MAX_STEERS_PER_TURN,
        )
        loop = SessionLoop(io, driver, self.agent, owned, bounds=bounds, context=self._context)
        try:
            return await loop.run(forced=forced)
        except Fenced:
            return None if forced else await io.db(self._decided, driver)
        except GeneratorExit:  # the event loop is gone, and nothing can be awaited any more
            raise
        except BaseException as error:
            keeper.let_go(owned)
            left = isinstance(error, HandedOver | asyncio.CancelledError)
            await io.db(self._hand_over, driver, 0 if left else _AFTER_ERROR_SECONDS)
            raise
        finally:
            driving.reset(token)
            keeper.let_go(owned)

    def _decided(self, driver: Driver) -> RunOutcome | None:
        """The outcome of a run that was ended by a decision from outside; `None`: another owner has the
        session now."""
        try:
            if driver.run is None or self.store.get_lease(driver.session_id) is not None:
                return None
            return outcome_of(self.store.get_run(driver.session_id, driver.run.run_id))
        except NotFound:
            return None

    def _owned(self, session_id: str) -> OwnedSession:
        return OwnedSession(
            store=self.store,
            session_id=session_id,
            lease_ttl=self.lease_ttl,
            closing=self._closing.is_set,
        )

    def _hand_over(self, driver: Driver, seconds: float) -> None:
        """Let the lease be over soon, so that the next worker takes the run."""
        if driver.lease is None:
            return
        try:
            self.store.renew_lease(driver.lease, seconds)
        except Exception:
            _log.info("The lease of session %r runs out by itself.", driver.session_id)

    async def _wait_for_owner(self, io: IO, session_id: str) -> RunOutcome | None:
        """The outcome of a drive in another process; `None` if its owner is gone."""
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
                return await self._interrupt_waiting(io, session_id, reason)
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
        except SessionMoved:
            raise
        except SessionNotFound:
            return IDLE

    async def _interrupt_waiting(self, io: IO, session_id: str, reason: str | None) -> RunOutcome:
        """Stop a session that waits for others, or a run that waits for its next attempt. Any other run
        without a driver is left alone."""
        if await io.db(interrupt_waiting, self.store, session_id, reason):
            return RunOutcome(kind="interrupted", run=await io.db(self._last_run, session_id))
        run = await io.db(self.store.get_current_run, session_id)
        lease = await io.db(self.store.get_lease, session_id)
        if run is None or lease is not None:
            return IDLE
        await io.db(self.store.set_interrupt_flag, session_id, reason)
        await io.db(self.store.request_run, session_id)
        return await self._drive(io, session_id, forced=False)

    def _forget_request(self, session_id: str) -> None:
        """It ended before it saw the request. A run whose owner is gone is still to stop."""
        seen = self.store.peek_interrupt_flag(session_id) is None
        if not seen and self.store.get_current_run(session_id) is None:
            self.store.clear_interrupt_flag(session_id)

    async def _is_driven(
        self, io: IO, session_id: str, here: OwnedSession | None, before: Lease | None
    ) -> bool:
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
        await io.db(self.store.settle_expired_calls)  # a deadline that has passed is an answer
        with keeper.staying():
            while not self._closing.is_set():
                try:
                    driver = await io.db(self.claim)
                except SessionBusy:  # on SQLite, another connection writes
                    break
                if driver is None:
                    break
                try:
                    outcome = await self._drive_claimed(io, driver)
                    swept += outcome is not IDLE
                except NotConfigured:
                    raise
                except HelixSessionsError:
                    _log.exception("Session %r could not be driven.", driver.session_id)
        return swept


def new_owner() -> str:
    """The name of an owner of leases, which no other has."""
    return f"{socket.gethostname()[:100]}:{os.getpid()}:{uuid.uuid4().hex[:12]}"


def _check_seconds(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InvalidInput(f"{name} must be a number of seconds above 0.")


def _sync(store: SessionStore | AsyncSessionStore | None) -> SessionStore:
    if isinstance(store, AsyncSessionStore):
        return cast(SessionStore, vars(store)["_store"])
    return store or SessionStore()


async def _joined(io: IO, other: OwnedSession) -> RunOutcome | None:
    """The outcome of a drive in this process; `None` if it came to nothing."""
    pause = _SHORTEST_LOOK
    while not other.done.is_set():
        await io.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_LOOK / 10)
    return other.outcome
