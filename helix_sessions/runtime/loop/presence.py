"""Says that a worker is alive, for the operator's console."""

import os
import socket

from django.utils import timezone

from helix_sessions.runtime.agents import configured_agents
from helix_sessions.runtime.companion import Companion
from helix_sessions.runtime.loop.worker import Worker
from helix_sessions.store.driving import workers


class Presence(Companion):
    """Renews the row of a worker while the block runs, and removes it with the block."""

    name = "helix-worker-presence"
    failure = "The worker could not say that it is alive."

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker.using, poll=workers.BEAT_SECONDS)
        self._worker = worker
        self._started_at = timezone.now()

    def step(self, *, to_the_end: bool) -> int:
        """Renew the row."""
        worker = self._worker
        workers.beat(
            worker.using,
            worker.owner,
            host=socket.gethostname()[:255],
            pid=os.getpid(),
            concurrency=worker.concurrency,
            agents=sorted(configured_agents()),
            started_at=self._started_at,
            driven=worker.tally.driven,
            failed=worker.tally.failed,
        )
        return 0

    def leave(self) -> None:
        """Remove the row."""
        workers.leave(self._worker.using, self._worker.owner)
