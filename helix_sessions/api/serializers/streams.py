"""The event stream."""

from rest_framework import serializers

from helix_sessions.api.serializers.fields import DocumentField, Input
from helix_sessions.store.inputs import MAX_INTEGER


class StreamQuery(Input):
    after = serializers.IntegerField(required=False, min_value=0, max_value=MAX_INTEGER)
    types = serializers.ListField(child=serializers.CharField(), required=False, max_length=50)
    run = serializers.CharField(required=False, trim_whitespace=False)
    wait = serializers.FloatField(required=False, min_value=0)
    named = serializers.BooleanField(required=False, default=True)


class FragmentInput(Input):
    data = DocumentField()  # type: ignore[assignment]
