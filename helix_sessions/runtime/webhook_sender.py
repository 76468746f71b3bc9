"""Sends webhooks beside a worker."""

import logging

from helix_sessions.runtime.companion import Companion

_SELDOM = 3
"""How many times as long as a worker it waits before it looks by itself."""


class WebhookSender(Companion):
    """Looks for what is due.

    It looks when it is told to, and by itself less often than a worker, whose `poll` is given.
    """

    name = "helix-webhook-sender"
    failure = "Webhooks could not be sent."
    log = logging.getLogger("helix_sessions.webhooks")

    def __init__(self, using: str | None, *, poll: float, until_idle: bool = False) -> None:
        super().__init__(using, poll=_SELDOM * poll, until_idle=until_idle)

    def step(self, *, to_the_end: bool) -> int:
        """Send what is due."""
        return self._store.send_webhooks(should_stop=None if to_the_end else self._stop.is_set)
