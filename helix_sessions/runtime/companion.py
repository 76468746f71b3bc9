"""Work beside a worker: a thread that does a little now and then, on a connection of its own."""

import logging
import threading
from types import TracebackType
from typing import Self

from django.db import connections

from helix_sessions.store import SessionStore


class Companion:
    """Works while the block runs, so that no session waits for it.

    With `until_idle` the block ends when there is nothing left to do, and otherwise after the step under way.
    """

    name: str
    """Of the thread."""
    failure: str
    """What the log says when a step fails; the next one is made all the same."""
    log = logging.getLogger("helix_sessions.worker")

    def __init__(self, using: str | None, *, poll: float, until_idle: bool = False) -> None:
        self._store = SessionStore(using)
        self.poll = poll
        self._until_idle = until_idle
        self._stop = threading.Event()
        self._told = threading.Event()
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)

    def look(self) -> None:
        """There may be something to do."""
        self._told.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self.look()
        self._thread.join()

    def step(self, *, to_the_end: bool) -> int:
        """Do what there is to do; how much it was. Not `to_the_end`, it stops when it is told to."""
        raise NotImplementedError

    def leave(self) -> None:
        """What is to be done before the thread ends."""

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                self._told.clear()
                self._try()
                if not self._stop.is_set():
                    self._told.wait(self.poll)
            while self._until_idle and self._try(to_the_end=True):
                pass
            self.leave()
        except Exception:
            self.log.exception(self.failure)
        finally:
            connections.close_all()

    def _try(self, *, to_the_end: bool = False) -> int:
        try:
            return self.step(to_the_end=to_the_end)
        except Exception:
            self.log.exception(self.failure)
            connections.close_all()
            return 0


_SELDOM = 3
"""How many times as long as a worker the sender waits before it looks by itself."""


class WebhookSender(Companion):
    """Looks for what is due: when it is told to, and by itself less often than a worker, whose `poll` is
    given."""

    name = "helix-webhook-sender"
    failure = "Webhooks could not be sent."
    log = logging.getLogger("helix_sessions.webhooks")

    def __init__(self, using: str | None, *, poll: float, until_idle: bool = False) -> None:
        super().__init__(using, poll=_SELDOM * poll, until_idle=until_idle)

    def step(self, *, to_the_end: bool) -> int:
        """Send what is due."""
        return self._store.send_webhooks(should_stop=None if to_the_end else self._stop.is_set)
