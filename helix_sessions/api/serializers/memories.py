"""Memories across sessions."""

import json
from typing import Any

from rest_framework import serializers

from helix_sessions.api.serializers.fields import (
    DocumentField,
    IdField,
    Input,
    ObjectField,
    TextsField,
    shaped,
)
from helix_sessions.api.serializers.pages import PageQuery

_INDEX = {
    "oneOf": [{"type": "boolean", "enum": [False]}, {"type": "array", "items": {"type": "string"}}],
    "nullable": True,
}


class NamespaceField(serializers.CharField):
    """A namespace in an address: a JSON list of strings."""

    def to_internal_value(self, data: Any) -> Any:
        try:
            found = json.loads(super().to_internal_value(data))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list) or not all(isinstance(part, str) for part in found):
            raise serializers.ValidationError(['This must be a JSON list of strings, such as ["owner","7"].'])
        return found


class MemoryInput(Input):
    namespace = TextsField(
        required=False, help_text="Where it is kept: 1 to 10 texts. Without it, where the user's own are."
    )
    key = IdField()
    value = ObjectField()
    ttl = serializers.FloatField(required=False, allow_null=True, help_text="Seconds after which it is gone.")
    index = shaped(DocumentField, _INDEX)(
        required=False, help_text="Null: all texts are found; false: none; or some keys of the value."
    )


class MemoryQuery(Input):
    namespace = NamespaceField(required=False)
    key = serializers.CharField(trim_whitespace=False)


class MemoriesQuery(PageQuery):
    prefix = NamespaceField(required=False)
    query = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False)
