"""Sends webhooks beside a worker: a thread that looks for what is due."""

import logging
import threading
from types import TracebackType

from django.db import connections

from helix_sessions.store import SessionStore

_log = logging.getLogger("helix_sessions.webhooks")


class WebhookSender:
    """Sends while the block runs, on a connection of its own, so that no session waits for a receiver.

    With `until_idle` the block ends when nothing is due any more, and otherwise after the attempt under way.
    """

    def __init__(self, using: str | None, *, poll: float, until_idle: bool = False) -> None:
        self._store = SessionStore(using)
        self._poll = poll
        self._until_idle = until_idle
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="helix-webhook-sender", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                self._send()
                self._stop.wait(self._poll)
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
