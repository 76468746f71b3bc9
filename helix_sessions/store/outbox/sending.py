"""Sends what is due: signed, bounded in time, at least once, and under the same id in every attempt."""

import base64
import hmac
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from urllib.parse import urlsplit

from django.db import connections
from django.utils import timezone

from helix_sessions import egress, models
from helix_sessions.conf import conf
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.store.engine.store import Store
from helix_sessions.store.outbox import deliveries, webhooks

_log = logging.getLogger("helix_sessions.webhooks")

ATTEMPT_SECONDS = 10.0
"""How long a receiver may take to answer."""

_TURN_SECONDS = 10.0
"""After so long the other webhooks have their turn; only a receiver that is slow is interrupted by it."""

_AT_ONCE = 8
"""How many webhooks are served at a time."""


def send_webhooks(store: Store, *, limit: int = 100, should_stop: Callable[[], bool] | None = None) -> int:
    """Send what is due, at most `limit` deliveries of each webhook, the longest due first; return how
    many attempts were made. `run_sessions` calls it. Any number of processes may call it at once."""
    using = store.using
    waiting = deliveries.webhooks_with_work(using, timezone.now())
    stopped = should_stop or (lambda: False)
    if len(waiting) <= 1:
        return sum(_serve(using, key, limit, stopped) for key in waiting)

    def serve(webhook_id: str) -> int:
        try:
            return _serve(using, webhook_id, limit, stopped)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="helix-webhooks") as threads:
        return sum(threads.map(serve, waiting))


def _serve(using: str, webhook_id: str, limit: int, should_stop: Callable[[], bool]) -> int:
    """Send what is due to one webhook, one after another."""
    until = time.monotonic() + _TURN_SECONDS
    made = 0
    while made < limit and time.monotonic() < until and not should_stop():
        webhook = models.Webhook.objects.using(using).filter(webhook_id=webhook_id, enabled=True).first()
        row = None if webhook is None else deliveries.claim(using, webhook_id, timezone.now())
        if webhook is None or row is None:
            break
        _attempt(using, webhook, row)
        made += 1
    if made:
        deliveries.forget_old(using, webhook_id, timezone.now())
    return made


def _attempt(using: str, webhook: models.Webhook, row: models.WebhookDelivery) -> None:
    status_code, error = None, None
    try:
        status_code = post(webhook.url, row.message_id, row.body, webhook.secret)
        if not 200 <= status_code < 300:
            error = f"The answer was {status_code}."
    except HelixSessionsError as problem:
        error = str(problem)
    except (OSError, HTTPException, ValueError) as problem:
        error = f"{type(problem).__name__}: {problem}"
    given_up = deliveries.settle(using, row, timezone.now(), status_code, error)
    if given_up:
        _log.error("Webhook %s: delivery %s is given up: %s", webhook.pk, row.message_id, error)
    elif error is not None:
        _log.warning(
            "Webhook %s: attempt %d of delivery %s: %s", webhook.pk, row.attempts, row.message_id, error
        )


def post(url: str, message_id: str, body: str, secret: str) -> int:
    """Send one message; the status of the answer. Redirects are not followed."""
    timestamp = int(timezone.now().timestamp())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": egress.USER_AGENT,
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(secret, message_id, timestamp, body),
    }
    parts = urlsplit(webhooks.checked_url(url))
    with egress.answered(
        "POST",
        parts,
        until=time.monotonic() + ATTEMPT_SECONDS,
        allow_private=conf.WEBHOOK_ALLOW_PRIVATE,
        headers=headers,
        body=body.encode(),
    ) as response:
        return response.status  # what else the answer says is not read


def signature(secret: str, message_id: str, timestamp: int, body: str) -> str:
    """The signature of a message, as Standard Webhooks has it."""
    key = webhooks.secret_bytes(secret)
    if key is None:
        raise HelixSessionsError("The secret of the webhook cannot be used.")
    signed = hmac.digest(key, f"{message_id}.{timestamp}.{body}".encode(), "sha256")
    return f"v1,{base64.b64encode(signed).decode()}"
