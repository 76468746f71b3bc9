"""Actions of the runtime: what each takes, and the session that comes back."""

from typing import Any

from helix_sessions.api.schema import union
from helix_sessions.api.serializers.fields import (
    DocumentField,
    IdField,
    Input,
    TextField,
    shaped,
)
from helix_sessions.runtime.actions.tasks import MOST_TASKS, STATUSES

_NUMBER = {"type": ["number", "null"], "minimum": 0}
_COUNT = {"type": ["integer", "null"], "minimum": 0}

BUDGET: dict[str, Any] = {
    "type": ["object", "null"],
    "properties": {
        "max_steps": _COUNT,
        "max_tokens": _COUNT,
        "max_seconds": _NUMBER,
        "max_cost": _NUMBER,
        "deadline": {"type": ["string", "null"], "format": "date-time"},
    },
    "additionalProperties": False,
}
TASKS: dict[str, Any] = {
    "type": "array",
    "maxItems": MOST_TASKS,
    "items": {
        "type": "object",
        "properties": {
            "content": {"type": "string", "minLength": 1},
            "status": {"type": "string", "enum": list(STATUSES)},
            "active_form": {"type": ["string", "null"]},
        },
        "required": ["content", "status"],
        "additionalProperties": False,
    },
}
MESSAGE: dict[str, Any] = {
    "oneOf": [
        {"type": "string"},
        {"type": "object", "properties": {"role": {"type": "string"}}, "required": ["role"]},
    ],
    "description": "What the user says: a string, or a message.",
}


def named(name: str) -> DocumentField:
    """The field that says which action is meant."""
    return shaped(DocumentField, {"type": "string", "const": name})()


class ResumeSessionInput(Input):
    """Make the session active, regardless of its status."""

    action = named("ResumeSession")


class SuspendSessionInput(Input):
    """Suspend the session; it keeps everything it has."""

    action = named("SuspendSession")


class ClearSessionInput(Input):
    """Empty the transcript and forget the last execution. The log keeps what was said."""

    action = named("ClearSession")


class ChangeModelInput(Input):
    """Another model; null for the agent's default."""

    action = named("ChangeModel")
    model = DocumentField()


class ChangeBudgetInput(Input):
    """Other limits for the executions to come; null for none."""

    action = named("ChangeBudget")
    budget = shaped(DocumentField, BUDGET)()


class ChangeSystemPromptInput(Input):
    """Another system prompt."""

    action = named("ChangeSystemPrompt")
    text = TextField(allow_blank=True)


class WriteMetadataInput(Input):
    """One key of the metadata; null is a value like any other."""

    action = named("WriteMetadata")
    key = TextField(allow_blank=True)
    value = DocumentField()


class UpdateTaskInput(Input):
    """Replace the list of tasks: at most 20, at most one of them in progress."""

    action = named("UpdateTask")
    tasks = shaped(DocumentField, TASKS)()


class SendMessageInput(Input):
    """Store what a user said, then let the agent that the settings name for this session answer."""

    action = named("SendMessage")
    message = shaped(DocumentField, MESSAGE)()


class ForkSessionInput(Input):
    """A new session with this one for a parent, which stays as it is."""

    action = named("ForkSession")
    new_id = IdField(required=False, allow_null=True)


INPUTS: dict[str, type[Input]] = {
    kind.__name__.removesuffix("Input"): kind
    for kind in (
        ResumeSessionInput,
        SuspendSessionInput,
        ClearSessionInput,
        ChangeModelInput,
        ChangeBudgetInput,
        ChangeSystemPromptInput,
        WriteMetadataInput,
        UpdateTaskInput,
        SendMessageInput,
        ForkSessionInput,
    )
}

SessionAction = union("SessionAction", "action", INPUTS)
