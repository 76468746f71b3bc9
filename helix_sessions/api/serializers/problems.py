"""What an error looks like (RFC 9457)."""

from typing import Any

from rest_framework import serializers


class ProblemSerializer(serializers.Serializer[Any]):
    type = serializers.CharField(help_text="A URI that stands for `code`.")
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField(help_text="Stable across releases.")
    detail = serializers.CharField(help_text="For people.")
    errors = serializers.JSONField(required=False, help_text="What is wrong with each key of the request.")  # type: ignore[assignment]
    expected_version = serializers.IntegerField(required=False)
    current_version = serializers.IntegerField(required=False)
    current_status = serializers.CharField(required=False)
    tool_call_ids = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="The tool calls a session waits for."
    )
    sub_session_ids = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="The sub-sessions a session waits for."
    )
