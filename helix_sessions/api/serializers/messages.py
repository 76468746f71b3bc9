"""The transcript, and compactions of it."""

from rest_framework import serializers

from helix_sessions.api.serializers.fields import (
    ChoiceText,
    IdField,
    Input,
    ObjectsField,
    TextField,
    WholeField,
)
from helix_sessions.api.serializers.pages import PageQuery
from helix_sessions.types import FEEDBACK_RATINGS


class MessagesInput(Input):
    messages = ObjectsField(help_text="Objects with a `role`: user, assistant, tool or system.")
    run_id = IdField(required=False, allow_null=True)


class FeedbackInput(Input):
    rating = ChoiceText(FEEDBACK_RATINGS)
    comment = TextField(required=False, allow_null=True, help_text="At most 2,000 characters.")


class TruncateInput(Input):
    count = WholeField(min_value=0, help_text="How many of the first messages stay.")


class MessagesQuery(PageQuery):
    offset = serializers.IntegerField(required=False, min_value=0)
    newest_first = serializers.BooleanField(required=False)


class CompactionInput(Input):
    reason = IdField(required=False, help_text="Why; `manual` if nothing is said.")
