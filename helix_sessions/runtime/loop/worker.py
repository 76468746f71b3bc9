"""The embedded worker: claims sessions that want to run, and drives so many at a time.

Each of its threads claims for itself, so that a session is driven on the connection that claimed it. While
there is nothing to do one of them looks now and then; where commits of other processes are announced it is
told of new work at once.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.db import connections

from helix_sessions.runtime.agents import agent_for, configured_agents
from helix_sessions.runtime.companion import Companion, Lookout
from helix_sessions.runtime.loop.lease_keeper import keeper
from helix_sessions.runtime.loop.run_loop import HandedOver
from helix_sessions.runtime.loop.runner import SessionRunner, claim_next, new_owner
from helix_sessions.runtime.scheduling import configured_runner
from helix_sessions.store import SessionStore
from helix_sessions.store.driving.driver import Driver
from helix_sessions.store.driving.due import Duty
from helix_sessions.store.limits import spend_totals
from helix_sessions.store.state.runner_notices import RUNNERS
from helix_sessions.stream.hub import hub
from helix_sessions.types import Fragment, RunOutcome

_log = logging.getLogger("helix_sessions.worker")

LOOK_SECONDS = 2.0
"""How long a worker that found nothing waits before it looks by itself. All that a process without work asks
the database is less than one statement in a second."""

SPEND_SECONDS = 15.0
"""How often what was spent is added up, at most."""

_DUE_LOOKS = 2.5
"""How many times as long passes before it asks what else is due: deadlines, schedules, and what goes on
beside it."""


@dataclass(slots=True)
class Tally:
    """What a worker has done."""

    driven: int = 0
    failed: int = 0


class Worker:
    """Drives sessions until it is told to stop, or, with `until_idle`, until there is nothing left."""

    def __init__(
        self,
        *,
        using: str | None,
        concurrency: int,
        lease_ttl: float = 30,
        poll: float = LOOK_SECONDS,
        on_outcome: Callable[[str, RunOutcome], None] | None = None,
        beside: Sequence[Companion] = (),
    ) -> None:
        """`beside`: what is told when it has something to do."""
        self.owner = new_owner()
        self.concurrency = concurrency
        self.lease_ttl = lease_ttl
        self.poll = poll
        self.tally = Tally()
        self._on_outcome = on_outcome
        self._store = SessionStore(using)
        self.using = self._store.using
        acts: dict[Duty, Callable[[], object]] = {
            "deadlines": self._store.settle_expired_calls,
            "schedules": self._fire_schedules,
            "spend": self._add_up,
        }
        acts |= {companion.duty: companion.look for companion in beside if companion.duty is not None}
        self.lookout = Lookout(self.using, poll=_DUE_LOOKS * poll, acts=acts)
        self._next_sum = 0.0
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._runners: dict[str, SessionRunner] = {}
        self._busy = 0
        self._hints = 0
        """How many more looks were asked for."""
        self._next_look = 0.0
        self._firing = threading.Lock()
        self._has_driven = False
        """Whether something was driven since the worker came to rest: a firing may have queued behind it."""
        self._until_idle = False

    def stop(self) -> None:
        """Take no more sessions; what is being driven ends its run."""
        self._stop.set()
        for runner in list(self._runners.values()):
            runner.close()
        with self._changed:
            self._changed.notify_all()

    def hand_over(self) -> None:
        """Leave what is still being driven to others, each session at its next boundary."""
        keeper.leave_all()

    def work(self, *, until_idle: bool = False) -> Tally:
        """Drive sessions. When it returns, nothing of it is running."""
        self._until_idle = until_idle
        key = (self.using, RUNNERS)
        hub.watch(key, self)
        threads = [
            threading.Thread(target=self._work, name=f"helix-worker-{number}")
            for number in range(self.concurrency)
        ]
        try:
            with self.lookout, keeper.staying():
                for thread in threads:
                    thread.start()
                for thread in threads:
                    while thread.is_alive():
                        thread.join(1.0)  # so that signals are handled
        finally:
            hub.unwatch(key, self)
            connections.close_all()
        return self.tally

    def poke(self, first_seq: int | None) -> None:
        """A session wants to run."""
        with self._changed:
            self._hints = min(self._hints + 1, self.concurrency)
            self._changed.notify()

    def offer(self, fragment: Fragment) -> None:
        """Fragments are for readers."""

    def detach(self) -> None:
        """Nothing is held for readers."""

    def _work(self) -> None:
        """One thread: claim, drive, and wait when there is nothing."""
        try:
            while self._wait_for_turn():
                driver = self._claim()
                if driver is not None:
                    self._drive(driver)
                with self._changed:
                    self._busy -= 1
                    if driver is not None:
                        self._hints = max(self._hints, 1)  # where one was, there may be another
                    elif self._until_idle and not (self._busy or self._hints):
                        self._stop.set()
                    self._changed.notify_all()
        finally:
            connections.close_all()

    def _wait_for_turn(self) -> bool:
        """Until there is reason to look; whether the worker goes on."""
        with self._changed:
            while not self._stop.is_set():
                now = time.monotonic()
                if self._hints or now >= self._next_look:
                    self._hints = max(0, self._hints - 1)
                    self._next_look = now + self.poll
                    self._busy += 1
                    return True
                self._changed.wait(self._next_look - now)
            return False

    def _claim(self) -> Driver | None:
        try:
            named = configured_agents()
            types = None if "*" in named else list(named)
            driver = claim_next(self._store, self.owner, self.lease_ttl, agent_types=types)
            if driver is None and self._fire_what_queued():
                driver = claim_next(self._store, self.owner, self.lease_ttl, agent_types=types)
        except Exception:
            _log.exception("Sessions could not be looked for.")
            connections.close_all()
            return None
        if driver is not None:
            with self._changed:  # there may be more: let another thread look
                self._hints = max(self._hints, 1)
                self._changed.notify()
        return driver

    def _fire_what_queued(self) -> bool:
        """Fire schedules once when the worker comes to rest; whether it did."""
        with self._changed:
            if not self._has_driven:
                return False
            self._has_driven = False
        try:
            self._fire_schedules()
        except Exception:
            _log.exception("Schedules could not be fired.")
            connections.close_all()
        return True

    def _fire_schedules(self) -> None:
        with self._firing:  # two at once would leave each other's schedules out, and one may be the last look
            self._store.fire_schedules()

    def _add_up(self) -> None:
        """What was spent. While turns are made there is always something, so not every time."""
        now = time.monotonic()
        if now >= self._next_sum:
            self._next_sum = now + SPEND_SECONDS
            spend_totals.fold(self.using)

    def _drive(self, driver: Driver) -> None:
        key = driver.session_id
        try:
            outcome = self._runner(driver.known.row.agent_type).drive_claimed(driver)
            self.tally.driven += outcome.kind != "idle"
            self.tally.failed += outcome.kind == "failed"
            if self._on_outcome is not None:
                self._on_outcome(key, outcome)
        except HandedOver:
            _log.info("Session %r is left to another worker.", key)
        except Exception:
            self.tally.failed += 1
            _log.exception("Session %r could not be driven.", key)
            connections.close_all()
        finally:
            self._has_driven = True

    def _runner(self, agent_type: str) -> SessionRunner:
        if agent_type not in self._runners:
            runner = configured_runner(agent_for(agent_type), self._store, lease_ttl=self.lease_ttl)
            if self._stop.is_set():
                runner.close()
            self._runners[agent_type] = runner
        return self._runners[agent_type]
