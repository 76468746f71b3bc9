"""Sends webhooks beside a worker."""

import logging

from helix_sessions.runtime.companion import Companion


class WebhookSender(Companion):
    """Looks for what is due."""

    name = "helix-webhook-sender"
    failure = "Webhooks could not be sent."
    log = logging.getLogger("helix_sessions.webhooks")

    def step(self, *, to_the_end: bool) -> int:
        """Send what is due."""
        return self._store.send_webhooks(should_stop=None if to_the_end else self._stop.is_set)
