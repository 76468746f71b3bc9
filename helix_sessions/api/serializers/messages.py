"""The transcript, and compactions of it."""

from rest_framework import serializers

from helix_sessions.api.serializers.fields import IdField, Input, ObjectsField, WholeField
from helix_sessions.api.serializers.pages import PageQuery


class MessagesInput(Input):
    messages = ObjectsField(help_text="Objects with a `role`: user, assistant, tool or system.")
    run_id = IdField(required=False, allow_null=True)


class TruncateInput(Input):
    count = WholeField(min_value=0, help_text="How many of the first messages stay.")


class MessagesQuery(PageQuery):
    offset = serializers.IntegerField(required=False, min_value=0)
    newest_first = serializers.BooleanField(required=False)


class CompactionInput(Input):
    reason = IdField(required=False, help_text="Why; `manual` if nothing is said.")
