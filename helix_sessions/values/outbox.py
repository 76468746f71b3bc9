"""Webhooks, and what was sent to them."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args

WebhookEvent = Literal[
    "run.finished",
    "call.waiting",
    "session.failed",
    "session.expired",
    "spend.warning",
    "alert.firing",
    "alert.resolved",
]
WEBHOOK_EVENTS: tuple[WebhookEvent, ...] = get_args(WebhookEvent)

DeliveryState = Literal["waiting", "delivered", "failed"]
DELIVERY_STATES: tuple[DeliveryState, ...] = get_args(DeliveryState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that is told of events."""

    webhook_id: str
    url: str
    events: tuple[WebhookEvent, ...]
    """Which types are sent; empty: all."""
    enabled: bool
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedWebhook(Webhook):
    """A webhook with its secret, which is returned once."""

    secret: str = field(repr=False)
    """What its deliveries are signed with: `whsec_…`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """One event on its way to one webhook."""

    webhook_id: str
    message_id: str
    """Its id, and the header `webhook-id`: the same in every attempt, and for every webhook that gets this
    event."""
    type: WebhookEvent
    session_id: str
    body: str
    """What is sent, as text."""
    state: DeliveryState
    """`waiting` for its next attempt, `delivered`, or `failed`: given up."""
    attempts: int
    created_at: datetime
    due_at: datetime | None
    """When it is attempted next."""
    attempted_at: datetime | None
    delivered_at: datetime | None
    status_code: int | None
    """The answer to the last attempt."""
    error: str | None
    """Why the last attempt failed."""
