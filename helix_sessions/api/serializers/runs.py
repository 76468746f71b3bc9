"""Runs."""

from typing import Any

from rest_framework import serializers

from helix_sessions.api.serializers.fields import (
    AnyObject,
    ChoiceText,
    DocumentField,
    IdField,
    Input,
    ObjectField,
    TextField,
    WholeField,
)
from helix_sessions.types import RUN_STATUSES


class RunInput(Input):
    run_id = IdField(required=False, allow_null=True)
    metadata = ObjectField(required=False)


class RunUpdateInput(Input):
    status = ChoiceText(RUN_STATUSES)
    step_count = WholeField(required=False, allow_null=True, min_value=0)
    output = DocumentField(required=False)
    error = TextField(required=False, allow_null=True)
    usage = DocumentField(required=False)


class RunSerializer(serializers.Serializer[Any]):
    run_id = serializers.CharField()
    session_id = serializers.CharField()
    turn = serializers.IntegerField()
    status = serializers.ChoiceField(RUN_STATUSES)
    step_count = serializers.IntegerField()
    start_sequence = serializers.IntegerField()
    end_sequence = serializers.IntegerField(allow_null=True)
    output = serializers.JSONField()
    error = serializers.CharField(allow_null=True)
    usage = serializers.JSONField()
    metadata = AnyObject()
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class CurrentRunSerializer(serializers.Serializer[Any]):
    run = RunSerializer(allow_null=True)


class RunPageSerializer(serializers.Serializer[Any]):
    items = RunSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
