"""What chat front ends send. History that comes along is ignored, and so are a page's own keys."""

from typing import Any

from rest_framework import serializers

from helix_sessions.api.serializers.fields import (
    ChoiceText,
    DocumentField,
    IdField,
    Input,
    ObjectField,
    ObjectsField,
)
from helix_sessions.types import DELIVERIES

TRIGGERS = ("submit-message", "regenerate-message")


class OpenInput(Input):
    """An object that may have other keys."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            data = {name: data[name] for name in self.fields if name in data}
        return super().to_internal_value(data)


class ChatInput(OpenInput):
    """The body that the AI SDK's `DefaultChatTransport` sends."""

    messages = ObjectsField(
        max_length=100_000, help_text="Only the last is read: a message of a user, or answers to calls."
    )
    trigger = ChoiceText(TRIGGERS, required=False)
    messageId = IdField(  # noqa: N815 - the protocol's name
        required=False, allow_null=True, help_text="With `regenerate-message`: the answer to replace."
    )
    delivery = ChoiceText(DELIVERIES, required=False)
    arguments = ObjectField(
        required=False,
        help_text="By the id of a call that is approved: what to execute instead of its arguments.",
    )


class UIMessageInput(OpenInput):
    """The last message of a page."""

    id = IdField()
    role = ChoiceText(("user", "assistant"))
    parts = ObjectsField(max_length=1000)


class UIPartInput(OpenInput):
    """A part of it: text, a file, or a tool call with its answer."""

    type = serializers.CharField()
    text = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False)
    state = serializers.CharField(required=False)
    toolCallId = serializers.CharField(required=False)  # noqa: N815
    approval = DocumentField(required=False)
    output = DocumentField(required=False)
    errorText = serializers.CharField(required=False, allow_blank=True)  # noqa: N815
    url = serializers.CharField(required=False)
    mediaType = serializers.CharField(required=False)  # noqa: N815
    filename = serializers.CharField(required=False)


class RunAgentInput(OpenInput):
    """The input of AG-UI. State, tools and context that come along are ignored."""

    threadId = IdField()  # noqa: N815
    runId = IdField()  # noqa: N815
    messages = ObjectsField(max_length=100_000, help_text="Only the last is read.")
    resume = ObjectsField(required=False, allow_null=True, max_length=1000)
