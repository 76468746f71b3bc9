"""What the model sees, and compactions."""

from typing import Any

from rest_framework import serializers

from helix_sessions.api.serializers.fields import AnyObject, IdField, Input


class ContextSerializer(serializers.Serializer[Any]):
    baseline = serializers.CharField(allow_blank=True)
    messages = serializers.ListField(child=AnyObject())
    estimated_tokens = serializers.IntegerField()


class CompactionInput(Input):
    reason = IdField(required=False, help_text="Why; `manual` if nothing is said.")


class CompactionSerializer(serializers.Serializer[Any]):
    session_id = serializers.CharField()
    seq = serializers.IntegerField()
    from_seq = serializers.IntegerField()
    to_seq = serializers.IntegerField()
    reason = serializers.CharField()
    summary = serializers.CharField()
    message = AnyObject()
    message_count = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class CompactionsSerializer(serializers.Serializer[Any]):
    items = CompactionSerializer(many=True)


class MadeCompactionSerializer(serializers.Serializer[Any]):
    compaction = CompactionSerializer(allow_null=True)
