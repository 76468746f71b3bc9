"""Inputs, and what becomes of them."""

from typing import Any

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
from helix_sessions.api.serializers.runs import RunSerializer
from helix_sessions.types import DELIVERIES, RUN_STATUSES, SESSION_STATUSES

OUTCOMES = (*(status for status in RUN_STATUSES if status != "running"), "idle")


class AdmitInput(Input):
    prompt = DocumentField(help_text="A string, or an object whose keys become those of the message.")
    input_id = IdField(required=False, allow_null=True)
    delivery = ChoiceText(DELIVERIES, required=False)
    resume = FlagField(required=False, help_text="Whether to tell whoever runs the session.")


class DeliveryInput(Input):
    delivery = ChoiceText(DELIVERIES)


class StopInput(Input):
    reason = TextField(required=False, allow_null=True)
    timeout = serializers.FloatField(required=False, min_value=0)


class InputsQuery(PageQuery):
    pending = serializers.BooleanField(required=False, default=True)


class WaitQuery(Input):
    timeout = serializers.FloatField(required=False, min_value=0)


class InputReceiptSerializer(serializers.Serializer[Any]):
    input_id = serializers.CharField()
    session_id = serializers.CharField()
    prompt = serializers.JSONField()
    delivery = serializers.ChoiceField(DELIVERIES)
    admitted_seq = serializers.IntegerField()
    promoted_seq = serializers.IntegerField(allow_null=True)
    created_at = serializers.DateTimeField()


class InputPageSerializer(serializers.Serializer[Any]):
    items = InputReceiptSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class ScheduledSerializer(serializers.Serializer[Any]):
    scheduled = serializers.BooleanField()


class RunOutcomeSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(OUTCOMES)
    run = RunSerializer(allow_null=True)
    output = serializers.JSONField()
    error = serializers.CharField(allow_null=True)


class OccupancySerializer(serializers.Serializer[Any]):
    session_id = serializers.CharField()
    status = serializers.ChoiceField(SESSION_STATUSES)
    run_id = serializers.CharField(allow_null=True)
    pending_inputs = serializers.IntegerField()
    owner = serializers.CharField(allow_null=True)
    idle = serializers.BooleanField()
