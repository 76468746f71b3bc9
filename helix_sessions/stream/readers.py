"""Threads that read the database for event loops: a few for all readers of a process.

Django gives each request of an ASGI server a thread of its own, and with it a database connection. A thousand
open streams cannot have that, so what they read is read here. Threads come when there is work and go, with
their connections, when there has been none for a while.
"""

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from django.db import connections

T = TypeVar("T")

MOST_THREADS = 2
_IDLE = 2.0


class Readers:
    """A pool of daemon threads that shrinks to nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0

    def submit(self, job: Callable[[], T]) -> "Future[T]":
        """Run a job soon, outside any transaction."""
        future: Future[T] = Future()
        with self._lock:
            self._jobs.put((future, job))
            if self._idle < self._jobs.qsize() and self._threads < MOST_THREADS:
                self._threads += 1
                threading.Thread(target=self._work, name="helix_sessions-reader", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            try:
                with self._lock:
                    self._idle += 1
                try:
                    future, job = self._jobs.get(timeout=_IDLE)
                finally:
                    with self._lock:
                        self._idle -= 1
            except queue.Empty:
                with self._lock:
                    if not self._jobs.empty():
                        continue
                    self._threads -= 1
                connections.close_all()
                return
            _run(future, job)


def _run(future: "Future[Any]", job: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(job())
    except BaseException as error:
        future.set_exception(error)


readers = Readers()


def _start_afresh() -> None:
    readers.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
