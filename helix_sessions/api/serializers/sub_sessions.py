"""References to sub-sessions."""

from typing import Any

from rest_framework import serializers

from helix_sessions.api.serializers.fields import ChoiceText, DocumentField, IdField, Input
from helix_sessions.types import REF_LOCATIONS, REF_MODES, SESSION_STATUSES


class RefChangesInput(Input):
    agent_type = IdField(required=False)
    parent_tool_call_id = IdField(required=False, allow_null=True)
    status = ChoiceText(SESSION_STATUSES, required=False)
    mode = ChoiceText(REF_MODES, required=False)
    location = ChoiceText(REF_LOCATIONS, required=False)
    result = DocumentField(required=False)


class RefInput(RefChangesInput):
    sub_session_id = IdField()
    agent_type = IdField()


class RefsInput(Input):
    refs = RefInput(many=True)


class SubSessionRefSerializer(serializers.Serializer[Any]):
    sub_session_id = serializers.CharField()
    agent_type = serializers.CharField()
    parent_tool_call_id = serializers.CharField(allow_null=True)
    status = serializers.ChoiceField(SESSION_STATUSES)
    mode = serializers.ChoiceField(REF_MODES)
    location = serializers.ChoiceField(REF_LOCATIONS)
    result = serializers.JSONField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class SubSessionPageSerializer(serializers.Serializer[Any]):
    items = SubSessionRefSerializer(many=True)
    next_cursor = serializers.CharField(allow_null=True)
