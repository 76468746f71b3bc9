"""Webhooks."""

from typing import Any

from rest_framework import serializers

from helix_sessions.api.serializers.fields import ChoiceText, FlagField, Input, TextField
from helix_sessions.api.serializers.pages import PageQuery
from helix_sessions.store.outbox.webhooks import MAX_URL
from helix_sessions.types import DELIVERY_STATES, WEBHOOK_EVENTS


class EventsField(serializers.ListField):
    child = ChoiceText(WEBHOOK_EVENTS)

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, "help_text": "Which types are sent; empty: all.", **options})


class WebhookPatch(Input):
    url = TextField(required=False, max_length=MAX_URL)
    events = EventsField()
    enabled = FlagField(required=False)


class WebhookInput(WebhookPatch):
    url = TextField(max_length=MAX_URL, help_text="An `https` address in the public network.")
    secret = TextField(
        required=False,
        allow_null=True,
        help_text="`whsec_` and 24 to 64 bytes in base64; without one it is made.",
    )


class DeliveriesQuery(PageQuery):
    state = ChoiceText(DELIVERY_STATES, required=False)
