"""The transcript."""

from typing import Any

from rest_framework import serializers

from helix_sessions.api.serializers.fields import AnyObject, IdField, Input, ObjectsField, WholeField
from helix_sessions.api.serializers.pages import PageQuery


class MessagesInput(Input):
    messages = ObjectsField(help_text="Objects with a `role`: user, assistant, tool or system.")
    run_id = IdField(required=False, allow_null=True)


class TruncateInput(Input):
    count = WholeField(min_value=0, help_text="How many of the first messages stay.")


class MessagesQuery(PageQuery):
    offset = serializers.IntegerField(required=False, min_value=0)
    newest_first = serializers.BooleanField(required=False)


class MessagePageSerializer(serializers.Serializer[Any]):
    messages = serializers.ListField(child=AnyObject())
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()
    next_cursor = serializers.CharField(allow_null=True)


class AppendResultSerializer(serializers.Serializer[Any]):
    first_position = serializers.IntegerField()
    message_count = serializers.IntegerField()
    version = serializers.IntegerField()
    head_seq = serializers.IntegerField()


class MessageCountSerializer(serializers.Serializer[Any]):
    message_count = serializers.IntegerField()


class RemovedSerializer(serializers.Serializer[Any]):
    removed = serializers.IntegerField()
