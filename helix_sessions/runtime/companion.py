"""Work beside a worker: threads that do a little now and then, each on a connection of its own.

They wait until they are told. Who tells them is the lookout of the worker, which asks the database for all of
them in one statement.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from django.db import connections

from helix_sessions.store import SessionStore
from helix_sessions.store.driving.due import Duty, what_is_due

REST_SECONDS = 1.0
"""How long a companion rests that was told and found nothing, and how long it keeps a connection that it does
not use."""


class Companion:
    """Works while the block runs, so that no session waits for it.

    With `until_idle` the block ends when there is nothing left to do, and otherwise after the step under way.
    """

    name: str
    """Of the thread."""
    failure: str
    """What the log says when a step fails; the next one is made all the same."""
    duty: Duty | None = None
    """What a lookout watches for, to tell it."""
    log = logging.getLogger("helix_sessions.worker")

    def __init__(self, using: str | None, *, poll: float | None = None, until_idle: bool = False) -> None:
        """`poll`: after so many seconds it makes a step without being told."""
        self._store = SessionStore(using)
        self.poll = poll
        self._until_idle = until_idle
        self._stop = threading.Event()
        self._told = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """There may be something to do."""
        self._told.set()

    def __enter__(self) -> Self:
        self._stop.clear()
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self.look()
        if self._thread is not None:
            self._thread.join()

    def step(self, *, to_the_end: bool) -> int:
        """Do what there is to do; how much it was. Not `to_the_end`, it stops when it is told to."""
        raise NotImplementedError

    def leave(self) -> None:
        """What is to be done before the thread ends."""

    def _work(self) -> None:
        try:
            found = 1  # before it was told of anything
            while not self._stop.is_set():
                self._told.clear()
                before, found = found, self._try()
                if not found and not self._stop.is_set():
                    self._wait(in_vain=not before)
            while self._until_idle and self._try(to_the_end=True):
                pass
            self.leave()
        except Exception:
            self.log.exception(self.failure)
        finally:
            connections.close_all()

    def _wait(self, *, in_vain: bool) -> None:
        """Until it is told, or its poll is over. `in_vain`: it was told, and found nothing. Where that goes
        on it is not worth a look each time."""
        if self.poll is not None:
            self._told.wait(self.poll)
            return
        if in_vain:
            self._stop.wait(REST_SECONDS)
        if not self._told.wait(REST_SECONDS):
            connections.close_all()  # it may be long
            self._told.wait()

    def _try(self, *, to_the_end: bool = False) -> int:
        try:
            return self.step(to_the_end=to_the_end)
        except Exception:
            self.log.exception(self.failure)
            connections.close_all()
            return 0


class WebhookSender(Companion):
    """Sends what is due."""

    name = "helix-webhook-sender"
    failure = "Webhooks could not be sent."
    duty = "webhooks"
    log = logging.getLogger("helix_sessions.webhooks")

    def step(self, *, to_the_end: bool) -> int:
        """Send some."""
        return self._store.send_webhooks(should_stop=None if to_the_end else self._stop.is_set)


class Lookout(Companion):
    """Asks what is due, in one statement, and has it done. It does so also while all threads of its worker
    drive sessions. When its block begins, it has looked once."""

    name = "helix-worker-lookout"
    failure = "What is due could not be looked for."

    def __init__(self, using: str | None, *, poll: float, acts: Mapping[Duty, Callable[[], object]]) -> None:
        super().__init__(using, poll=poll)
        self._acts = acts

    def __enter__(self) -> Self:
        self._try()
        return super().__enter__()

    def step(self, *, to_the_end: bool) -> int:
        """Ask, and do what is due. What fails keeps nothing else from being done."""
        due = what_is_due(self._store, self._acts)
        for duty, act in self._acts.items():
            if duty in due:
                try:
                    act()
                except Exception:
                    self.log.exception("What is due could not be done: %s.", duty)
                    connections.close_all()
        return 0
