"""Stores the fragments of messages under way: one thread of a process writes the new fragments of all
messages, ten times a second, in one statement. It takes no lock of a session, and publishing a fragment never
waits for it."""

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


class PendingBatch(NamedTuple):
    """Fragments of one message that follow each other, and are not stored yet."""

    session_id: str
    run_id: str
    turn_id: str
    message_id: str
    first_index: int
    after_seq: int
    texts: Sequence[str]


class FragmentQueue(Protocol):
    """The fragments of one message under way."""

    def take(self) -> list[PendingBatch]:
        """Remove and return what was published since the last time."""

    def give_back(self, batches: list[PendingBatch]) -> None:
        """Take these back: they could not be written."""


class FragmentWriter:
    """Writes to one database alias."""

    def __init__(self, alias: str, write: Callable[[str, list[PendingBatch]], None]) -> None:
        self._alias = alias
        self._write = write
        self._changed = threading.Condition()
        self._waiting: dict[FragmentQueue, None] = {}
        self._thread: threading.Thread | None = None
        self._writing = threading.Lock()

    def enqueue(self, queue: FragmentQueue) -> None:
        """Write its fragments, soon. If it waits already, they are written with the others that it has."""
        if queue in self._waiting and self._thread is not None:
            return
        with self._changed:
            self._waiting[queue] = None
            if self._thread is None:
                self._start()
            else:
                self._changed.notify()

    def discard(self, queue: FragmentQueue) -> None:
        """Write nothing of it from now on. Wait for a write under way."""
        with self._writing, self._changed:
            self._waiting.pop(queue, None)

    def _start(self) -> None:
        thread = threading.Thread(
            target=self._run, name=f"helix_sessions-fragments-{self._alias}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # no thread is left; the next fragment tries again
            logger.warning("Fragments of messages are not stored (%s).", error)
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
            queues, self._waiting = list(self._waiting), {}
        taken = [(queue, batches) for queue in queues if (batches := queue.take())]
        if not taken:
            return True
        try:
            self._write(self._alias, [batch for _, batches in taken for batch in batches])
        except IntegrityError:
            for _, batches in taken:
                self._write_one(batches)
        except Exception as error:
            logger.warning("Fragments of messages could not be stored (%s).", type(error).__name__)
            connections[self._alias].close()
            with self._changed:
                for queue, batches in taken:
                    queue.give_back(batches)
                    self._waiting[queue] = None
            return False
        return True

    def _write_one(self, batches: list[PendingBatch]) -> None:
        try:
            self._write(self._alias, batches)
        except IntegrityError:
            logger.warning("Fragments of session %r are not stored.", batches[0].session_id)


_writers: dict[str, FragmentWriter] = {}
_lock = threading.Lock()


def writer_of(alias: str, write: Callable[[str, list[PendingBatch]], None]) -> FragmentWriter:
    """The writer of this process for a database."""
    writer = _writers.get(alias)
    if writer is None:
        with _lock:
            writer = _writers.setdefault(alias, FragmentWriter(alias, write))
    return writer


def _start_afresh() -> None:
    global _lock
    _lock = threading.Lock()
    _writers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
