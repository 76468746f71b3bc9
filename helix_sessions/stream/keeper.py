"""Keeps what is being said: one thread of a process writes the new fragments of all messages, ten times a
second, in one statement. It holds no lock of a session, and nobody who speaks waits for it."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from time import sleep
from typing import NamedTuple, Protocol

from django.db import IntegrityError, connections

logger = logging.getLogger("helix_sessions.stream")

INTERVAL = 0.1
"""Seconds from one write to the next."""
_IDLE = 2.0
_AFTER_FAILURE = 1.0


class Batch(NamedTuple):
    """Fragments of one message that follow each other."""

    session_id: str
    run_id: str
    turn_id: str
    message_id: str
    first_index: int
    after_seq: int
    texts: Sequence[str]


class Speech(Protocol):
    """A message under way."""

    def take(self) -> list[Batch]:
        """What was said since the last time."""

    def give_back(self, batches: list[Batch]) -> None:
        """Take these again: they could not be written."""


class Keeper:
    """Writes for one database alias."""

    def __init__(self, alias: str, write: Callable[[str, list[Batch]], None]) -> None:
        self._alias = alias
        self._write = write
        self._changed = threading.Condition()
        self._waiting: dict[Speech, None] = {}
        self._thread: threading.Thread | None = None
        self._writing = threading.Lock()

    def keep(self, speech: Speech) -> None:
        """Write what it has to say, soon."""
        with self._changed:
            self._waiting[speech] = None
            if self._thread is None:
                self._start()
            else:
                self._changed.notify()

    def forget(self, speech: Speech) -> None:
        """Write nothing of it from now on. A write under way is waited for."""
        with self._writing, self._changed:
            self._waiting.pop(speech, None)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=f"helix_sessions-keeper-{self._alias}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no thread is left; the next fragment tries again
            logger.warning("What is being said is not kept (%s).", error)
        else:
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._waiting, _IDLE):
                    self._thread = None
                    break
            with self._writing:
                written = self._write_all()
            sleep(INTERVAL if written else _AFTER_FAILURE)
        connections.close_all()

    def _write_all(self) -> bool:
        with self._changed:
            speeches, self._waiting = list(self._waiting), {}
        taken = [(speech, batches) for speech in speeches if (batches := speech.take())]
        if not taken:
            return True
        try:
            self._write(self._alias, [batch for _, batches in taken for batch in batches])
        except IntegrityError:
            for _, batches in taken:
                self._write_one(batches)
        except Exception as error:
            logger.warning("What is being said could not be kept (%s).", type(error).__name__)
            connections[self._alias].close()
            with self._changed:
                for speech, batches in taken:
                    speech.give_back(batches)
                    self._waiting[speech] = None
            return False
        return True

    def _write_one(self, batches: list[Batch]) -> None:
        try:
            self._write(self._alias, batches)
        except IntegrityError:
            logger.warning("What is being said in session %r is not kept.", batches[0].session_id)


_keepers: dict[str, Keeper] = {}
_lock = threading.Lock()


def keeper_of(alias: str, write: Callable[[str, list[Batch]], None]) -> Keeper:
    """The keeper of this process for a database."""
    with _lock:
        found = _keepers.get(alias)
        if found is None:
            found = _keepers[alias] = Keeper(alias, write)
        return found


def _start_afresh() -> None:
    global _lock
    _lock = threading.Lock()
    _keepers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
