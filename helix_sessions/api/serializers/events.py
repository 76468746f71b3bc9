"""The event log and its stream."""

from rest_framework import serializers

from helix_sessions.api.serializers.fields import DocumentField, IdField, Input
from helix_sessions.api.serializers.pages import PageQuery
from helix_sessions.store.engine.inputs import MAX_INTEGER


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
    turn_id = serializers.CharField(required=False, trim_whitespace=False)


class StreamQuery(Input):
    after = serializers.IntegerField(required=False, min_value=0, max_value=MAX_INTEGER)
    types = serializers.ListField(child=serializers.CharField(), required=False, max_length=50)
    run = serializers.CharField(required=False, trim_whitespace=False)
    wait = serializers.FloatField(required=False, min_value=0)
    named = serializers.BooleanField(required=False, default=True)


class FragmentInput(Input):
    data = DocumentField()  # type: ignore[assignment]
