"""The event log."""

from typing import Any

from rest_framework import serializers

from helix_sessions.api.serializers.fields import DocumentField, IdField, Input
from helix_sessions.api.serializers.pages import PageQuery


class EventInput(Input):
    type = IdField()
    data = DocumentField(required=False)  # type: ignore[assignment]
    turn_id = IdField(required=False, allow_null=True)
    run_id = IdField(required=False, allow_null=True)
    idempotency_key = IdField(
        required=False, allow_null=True, help_text="The same key again returns the first event, for good."
    )


class EventsQuery(PageQuery):
    from_seq = serializers.IntegerField(required=False, min_value=0)
    to_seq = serializers.IntegerField(required=False, min_value=0)
    types = serializers.ListField(child=serializers.CharField(), required=False, max_length=50)
    run_id = serializers.CharField(required=False, trim_whitespace=False)


class EventSerializer(serializers.Serializer[Any]):
    session_id = serializers.CharField()
    seq = serializers.IntegerField()
    type = serializers.CharField()
    data = serializers.JSONField()  # type: ignore[assignment]
    turn_id = serializers.CharField(allow_null=True)
    run_id = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField()


class EventPageSerializer(serializers.Serializer[Any]):
    items = EventSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)


class ProjectedMessageSerializer(serializers.Serializer[Any]):
    role = serializers.CharField()
    content = serializers.JSONField()
    tool_call_id = serializers.CharField(allow_null=True)
    seq = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class ProjectionSerializer(serializers.Serializer[Any]):
    items = ProjectedMessageSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
