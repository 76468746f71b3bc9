"""Sends webhooks beside a worker: a thread that looks for what is due."""

import logging
import threading
from types import TracebackType

from django.db import connections

from helix_sessions.store import SessionStore

_log = logging.getLogger("helix_sessions.webhooks")

_SELDOM = 3
"""How many times as long as a worker it waits before it looks by itself."""


class WebhookSender:
    """Sends while the block runs, on a connection of its own, so that no session waits for a receiver.

    It looks when it is told to, and by itself less often than a worker, whose `poll` is given. With
    `until_idle` the block ends when nothing is due any more, and otherwise after the attempt under way.
    """

    def __init__(self, using: str | None, *, poll: float, until_idle: bool = False) -> None:
        self._store = SessionStore(using)
        self.poll = _SELDOM * poll
        self._told = threading.Event()
        self._until_idle = until_idle
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="helix-webhook-sender", daemon=True)

    def look(self) -> None:
        """Something may be due."""
        self._told.set()

    def __enter__(self) -> "WebhookSender":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self.look()
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                self._told.clear()
                self._send()
                self._told.wait(self.poll)
            while self._until_idle and self._send(to_the_end=True):
                pass
        finally:
            connections.close_all()

    def _send(self, *, to_the_end: bool = False) -> int:
        try:
            return self._store.send_webhooks(should_stop=None if to_the_end else self._stop.is_set)
        except Exception:
            _log.exception("Webhooks could not be sent.")
            connections.close_all()
            return 0
