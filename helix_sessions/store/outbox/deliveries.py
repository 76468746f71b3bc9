"""Deliveries: the last ones of a webhook, replayed, claimed by a sender, and settled."""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone

from helix_sessions import models
from helix_sessions.exceptions import WebhookNotFound
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import transaction_on
from helix_sessions.store.engine.cursors import Pager
from helix_sessions.store.engine.store import Store
from helix_sessions.store.outbox import webhooks
from helix_sessions.types import DELIVERY_STATES, DeliveryState, Page, WebhookDelivery

RETRY_SECONDS = (5, 30, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 24 * 3600)
"""How long after each failed attempt the next one is made. After the last one the delivery is given up."""

CLAIM = timedelta(seconds=60)
"""After so long without an outcome, the sender of an attempt is dead, and the next attempt is made."""

KEPT = timedelta(days=7)
"""How long what was delivered or given up can be seen and replayed."""

MAX_ERROR = 200
_GONE = 410

Rows = QuerySet[models.WebhookDelivery]


def list_webhook_deliveries(
    store: Store,
    webhook_id: str,
    *,
    state: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[WebhookDelivery]:
    """What was sent to a webhook and is to be sent, the newest first, of the last week."""
    webhooks.get_webhook(store, webhook_id)
    pager = Pager("webhook_deliveries", "pk", limit=limit, cursor=cursor, newest_first=True)
    rows = _rows(store.using).filter(webhook_id=webhook_id)
    if state is not None:
        rows = in_state(rows, inputs.choice(state, DELIVERY_STATES, "The state of a delivery"))
    return pager.page(rows, _value)


def replay_webhook_delivery(store: Store, webhook_id: str, message_id: str) -> WebhookDelivery:
    """Send it again, from the first attempt on, under the same id. One that waits is sent now."""
    webhooks.get_webhook(store, webhook_id)
    key = inputs.identifier(message_id, "message_id")
    with transaction_on(store.using):
        rows = _rows(store.using).filter(webhook_id=webhook_id, message_id=key)
        fresh = {"due_at": timezone.now(), "attempts": 0, "delivered_at": None}
        if not rows.update(**fresh):
            raise WebhookNotFound(f"The webhook has no delivery {key!r:.100}.")
        return _value(rows.get())


def in_state(rows: Rows, state: str) -> Rows:
    """Those of the rows that are in this state."""
    if state == "waiting":
        return rows.filter(due_at__isnull=False)
    return rows.filter(due_at__isnull=True, delivered_at__isnull=state == "failed")


def state_of(row: models.WebhookDelivery) -> DeliveryState:
    """What became of a delivery so far."""
    if row.due_at is not None:
        return "waiting"
    return "failed" if row.delivered_at is None else "delivered"


def due(using: str, now: datetime) -> Rows:
    """Deliveries of enabled webhooks that are to be sent."""
    return _rows(using).filter(due_at__lte=now, webhook__enabled=True)


def webhooks_with_work(using: str, now: datetime) -> list[str]:
    """The enabled webhooks with deliveries that are due."""
    return sorted(due(using, now).values_list("webhook_id", flat=True).distinct())


def claim(using: str, webhook_id: str, now: datetime) -> models.WebhookDelivery | None:
    """Take the delivery that is longest due, for as long as an attempt may take. Senders side by side take
    different ones."""
    with transaction_on(using):
        due = _rows(using).filter(webhook_id=webhook_id, due_at__lte=now).order_by("due_at", "pk")
        row = due.select_for_update(skip_locked=True, of=("self",)).first()
        if row is None:
            return None
        row.attempts, row.attempted_at, row.due_at = row.attempts + 1, now, now + CLAIM
        row.save(using=using, update_fields=["attempts", "attempted_at", "due_at"])
    return row


def settle(
    using: str, row: models.WebhookDelivery, now: datetime, status_code: int | None, error: str | None
) -> bool:
    """Note the outcome of the attempt that the row was claimed for, unless it was replayed, or claimed
    since; whether it was given up."""
    changes = {"status_code": status_code, "error": error if error is None else error[:MAX_ERROR]}
    given_up = error is not None and (row.attempts > len(RETRY_SECONDS) or status_code == _GONE)
    due_at = None
    if error is not None and not given_up:
        due_at = now + timedelta(seconds=RETRY_SECONDS[row.attempts - 1])
    with transaction_on(using):
        claimed = _rows(using).filter(pk=row.pk, attempts=row.attempts, due_at=row.due_at)
        claimed.update(due_at=due_at, delivered_at=now if error is None else None, **changes)
        if status_code == _GONE:
            models.Webhook.objects.using(using).filter(pk=row.webhook_id).update(enabled=False)
    return given_up


def forget_old(using: str, webhook_id: str, now: datetime) -> None:
    """Remove what is settled and older than a week."""
    old = _rows(using).filter(webhook_id=webhook_id, created_at__lt=now - KEPT, due_at__isnull=True)
    with transaction_on(using):
        old.delete()


def forget_sessions(using: str, session_ids: Collection[str]) -> None:
    """Remove what names these sessions, sent or not."""
    with transaction_on(using):
        _rows(using).filter(session_id__among=session_ids).delete()


def _rows(using: str) -> Rows:
    return models.WebhookDelivery.objects.using(using)


def _value(row: models.WebhookDelivery) -> WebhookDelivery:
    return WebhookDelivery(
        webhook_id=row.webhook_id,
        message_id=row.message_id,
        type=row.type,
        session_id=row.session_id,
        body=row.body,
        state=state_of(row),
        attempts=row.attempts,
        created_at=row.created_at,
        due_at=row.due_at,
        attempted_at=row.attempted_at,
        delivered_at=row.delivered_at,
        status_code=row.status_code,
        error=row.error,
    )
