"""Webhooks and their deliveries, for operators."""

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples, operator_examples
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.pagination import page_response
from helix_sessions.api.responses import json_response, no_content
from helix_sessions.api.schema import PAGE, Query, operation
from helix_sessions.api.serializers.webhooks import DeliveriesQuery, WebhookInput, WebhookPatch
from helix_sessions.api.views.base import View
from helix_sessions.conf import conf
from helix_sessions.store import SessionStore
from helix_sessions.types import DELIVERY_STATES, CreatedWebhook, Page, Webhook, WebhookDelivery

_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105


def _store() -> SessionStore:
    return SessionStore(conf.API_DATABASE)


class WebhooksView(View):
    @operation(
        "list_webhooks",
        tag="webhooks",
        response=Page[Webhook],
        example={"items": [operator_examples.WEBHOOK], "next_cursor": None},
        etag=False,
    )
    def get(self, request: Request) -> HttpResponse:
        """List webhooks, the oldest first, without their secrets."""
        self.query()
        return json_response(Page(items=_store().list_webhooks(), next_cursor=None))

    @operation(
        "create_webhook",
        tag="webhooks",
        request=WebhookInput,
        sent={"url": "https://hooks.example.com/agents", "events": ["run.finished", "call.waiting"]},
        response=CreatedWebhook,
        status=201,
        example={**operator_examples.WEBHOOK, "secret": _SECRET},
        etag=False,
    )
    @idempotent
    def post(self, request: Request) -> HttpResponse:
        """Have an address told of events of all sessions. This is the only answer with the secret."""
        given = self.input(WebhookInput)
        return json_response(_store().create_webhook(given.pop("url"), **given), status=201)


class WebhookView(View):
    @operation("get_webhook", tag="webhooks", response=Webhook, example=operator_examples.WEBHOOK, etag=False)
    def get(self, request: Request, webhook_id: str) -> HttpResponse:
        """Read a webhook, without its secret."""
        self.query()
        return json_response(_store().get_webhook(webhook_id))

    @operation(
        "update_webhook",
        tag="webhooks",
        request=WebhookPatch,
        sent={"enabled": False},
        response=Webhook,
        example={**operator_examples.WEBHOOK, "enabled": False},
        etag=False,
    )
    def patch(self, request: Request, webhook_id: str) -> HttpResponse:
        """Change a webhook. What waits for one that is not enabled goes on waiting."""
        return json_response(_store().update_webhook(webhook_id, **self.input(WebhookPatch)))

    @operation("delete_webhook", tag="webhooks", status=204, etag=False)
    def delete(self, request: Request, webhook_id: str) -> HttpResponse:
        """Delete a webhook, and what waits for it."""
        _store().delete_webhook(webhook_id)
        return no_content()


class DeliveriesView(View):
    @operation(
        "list_webhook_deliveries",
        tag="webhooks",
        response=Page[WebhookDelivery],
        example={"items": [operator_examples.WEBHOOK_DELIVERY], "next_cursor": None},
        query=(Query("state", "Only those in this state.", enum=DELIVERY_STATES), *PAGE),
        etag=False,
        linked=True,
    )
    def get(self, request: Request, webhook_id: str) -> HttpResponse:
        """List what was sent to a webhook and is to be sent, the newest first, of the last week."""
        page = _store().list_webhook_deliveries(webhook_id, **self.query(DeliveriesQuery))
        return page_response(request, page)


class ReplayView(View):
    @operation(
        "replay_webhook_delivery",
        tag="webhooks",
        response=WebhookDelivery,
        example={
            **operator_examples.WEBHOOK_DELIVERY,
            **{"state": "waiting", "attempts": 0, "due_at": examples.AT, "delivered_at": None},
        },
        etag=False,
    )
    @idempotent
    def post(self, request: Request, webhook_id: str, message_id: str) -> HttpResponse:
        """Send a delivery again, under the same id."""
        return json_response(_store().replay_webhook_delivery(webhook_id, message_id))
