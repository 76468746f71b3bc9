"""The embedded worker: looks for sessions nobody attends to, and drives so many at a time."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from django.db import connections

from helix_sessions.runtime.agents import agent_for, configured_agents
from helix_sessions.runtime.loop.lease_keeper import HandedOver, keeper
from helix_sessions.runtime.loop.runner import SessionRunner
from helix_sessions.runtime.loop.sweeps import Sweep, Unattended
from helix_sessions.runtime.scheduling import configured_runner
from helix_sessions.store import SessionStore
from helix_sessions.types import RunOutcome

_log = logging.getLogger("helix_sessions.worker")

LOOK_SECONDS = 1.5
"""How long a worker that found nothing waits before it looks again. Two looks cost two queries, and every
third one more: less than one query in a second."""

_LOOKS_PER_RECOVERY = 3

_LATER_SECONDS = 5.0
"""How long a session is left alone that came to nothing, or failed."""


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
        using: str,
        concurrency: int,
        lease_ttl: float = 30,
        poll: float = LOOK_SECONDS,
        on_outcome: Callable[[str, RunOutcome], None] | None = None,
    ) -> None:
        self.using = using
        self.concurrency = concurrency
        self.lease_ttl = lease_ttl
        self.poll = poll
        self.tally = Tally()
        self._on_outcome = on_outcome
        self._store = SessionStore(using)
        self._stop = threading.Event()
        self._idle = threading.Condition()
        self._busy: dict[str, Future[Any]] = {}
        self._runners: dict[str, SessionRunner] = {}
        self._later: dict[str, float] = {}
        self._looks = 0

    def stop(self) -> None:
        """Take no more sessions; what is being driven ends its activity."""
        self._stop.set()
        for runner in self._runners.values():
            runner.close()
        with self._idle:
            self._idle.notify_all()

    def hand_over(self) -> None:
        """Leave what is still being driven to others, each session at its next boundary."""
        keeper.leave_all()

    def work(self, *, until_idle: bool = False) -> Tally:
        """Drive sessions. When it returns, nothing of it is running."""
        with ThreadPoolExecutor(self.concurrency, thread_name_prefix="helix-worker") as threads:
            while not self._stop.is_set():
                taken = self._take(threads)
                if until_idle and not (taken or self._busy) and self._looks >= _LOOKS_PER_RECOVERY:
                    break
                self._wait(0 if taken and len(self._busy) < self.concurrency else self.poll)
            self._close_connections(threads)
        return self.tally

    def _close_connections(self, threads: ThreadPoolExecutor) -> None:
        """In every thread, once it has nothing more to drive."""
        together = threading.Barrier(self.concurrency)

        def close() -> None:
            together.wait()
            connections.close_all()

        for _ in range(self.concurrency):
            threads.submit(close)
        connections.close_all()

    def _take(self, threads: ThreadPoolExecutor) -> int:
        """Begin to drive what is found, as far as there is room; how many."""
        room = self.concurrency - len(self._busy)
        if room <= 0:
            return 0
        try:
            self._later = {key: until for key, until in self._later.items() if until > time.monotonic()}
            passed_over = {*self._busy, *self._later}
            sweep = Sweep(self._store, self._types(), limit=room + len(passed_over))
            found = sweep.find() if self._looks % _LOOKS_PER_RECOVERY == 0 else sweep.find_inputs()
            self._looks += 1
        except Exception:
            _log.exception("Sessions could not be looked for.")
            connections.close_all()
            return 0
        waiting = [each for each in found if each.session_id not in passed_over][:room]
        for each in waiting:
            with self._idle:
                self._busy[each.session_id] = threads.submit(self._drive, each)
        return len(waiting)

    def _drive(self, found: Unattended) -> None:
        try:
            outcome = self._runner(found.agent_type).attend(found)
            self.tally.driven += 1
            self.tally.failed += outcome.kind == "failed"
            if outcome.kind in ("failed", "idle"):
                self._later[found.session_id] = time.monotonic() + _LATER_SECONDS
            if self._on_outcome is not None:
                self._on_outcome(found.session_id, outcome)
        except HandedOver:
            _log.info("Session %r is left to another worker.", found.session_id)
        except Exception:
            self.tally.failed += 1
            self._later[found.session_id] = time.monotonic() + _LATER_SECONDS
            _log.exception("Session %r could not be driven.", found.session_id)
            connections.close_all()
        finally:
            with self._idle:
                self._busy.pop(found.session_id, None)
                self._idle.notify_all()

    def _runner(self, agent_type: str) -> SessionRunner:
        if agent_type not in self._runners:
            runner = configured_runner(agent_for(agent_type), self._store, lease_ttl=self.lease_ttl)
            self._runners[agent_type] = runner
        return self._runners[agent_type]

    def _types(self) -> list[str] | None:
        named = configured_agents()
        return None if "*" in named else list(named)

    def _wait(self, seconds: float) -> None:
        """Until something ends, or it is time to look again."""
        deadline = time.monotonic() + seconds
        with self._idle:
            before = len(self._busy)
            while not self._stop.is_set() and len(self._busy) >= before:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                self._idle.wait(left)
