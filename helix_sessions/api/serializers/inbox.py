"""Inputs, and what becomes of them."""

from rest_framework import serializers

from helix_sessions.api.serializers.fields import (
    ChoiceText,
    DocumentField,
    FlagField,
    IdField,
    Input,
    TextField,
)
from helix_sessions.api.serializers.pages import PageQuery
from helix_sessions.api.serializers.sessions import PriorityField
from helix_sessions.types import DELIVERIES


class AdmitInput(Input):
    prompt = DocumentField(help_text="A string, or an object whose keys become those of the message.")
    input_id = IdField(required=False, allow_null=True)
    delivery = ChoiceText(DELIVERIES, required=False)
    resume = FlagField(required=False, help_text="Whether to notify the driver of the session.")
    priority = PriorityField(required=False)


class DeliveryInput(Input):
    delivery = ChoiceText(DELIVERIES)


class StopInput(Input):
    reason = TextField(required=False, allow_null=True)
    timeout = serializers.FloatField(required=False, min_value=0)


class InputsQuery(PageQuery):
    pending = serializers.BooleanField(required=False, default=True)


class WaitQuery(Input):
    timeout = serializers.FloatField(required=False, min_value=0)
