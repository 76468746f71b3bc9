"""Turns with their runs and sub-sessions: begun, suspended, answered, resumed."""

from rest_framework import serializers

from helix_sessions.api.serializers.checkpoints import CheckpointMetaInput
from helix_sessions.api.serializers.fields import (
    CheckpointIdField,
    ChoiceText,
    DocumentField,
    FlagField,
    IdField,
    Input,
    MomentField,
    ObjectField,
    ObjectsField,
    TextField,
    WholeField,
    shaped,
)
from helix_sessions.api.serializers.states import StateInput
from helix_sessions.types import (
    APPROVERS,
    CALL_KINDS,
    REF_LOCATIONS,
    REF_MODES,
    REMEMBERED,
    RUN_STATUSES,
    SESSION_STATUSES,
    SUSPENSIONS,
    TERMINAL_STATUSES,
)

_OBJECT = {"type": "object", "additionalProperties": {}}

MessageField = shaped(DocumentField, {"oneOf": [{"type": "string"}, _OBJECT, {"type": "null"}]})
ArgumentsField = shaped(DocumentField, {**_OBJECT, "type": ["object", "null"]})
BranchField = shaped(
    DocumentField,
    {
        "type": ["array", "null"],
        "prefixItems": [{"type": "string"}, {"type": ["string", "null"]}],
        "items": {"type": ["string", "null"]},
        "minItems": 2,
        "maxItems": 2,
    },
)


class LeaseInput(Input):
    owner = IdField(help_text="Who drives the session: a name that no other process has.")
    ttl = serializers.FloatField(min_value=0, max_value=86_400, help_text="Seconds from now.")


class TurnInput(Input):
    """A turn to begin. `agent_type`, `branch` and `custom_state` are for a session that is created by it."""

    message = MessageField(required=False, help_text="A message object, or what a user said.")
    agent_type = IdField(required=False, allow_null=True)
    branch = BranchField(
        required=False,
        help_text="Create the session as a branch: a source session, and its checkpoint or null.",
    )
    custom_state = ObjectField(required=False, allow_null=True)
    run_id = IdField(required=False, allow_null=True)


class PendingCallInput(Input):
    """A tool call that a person or a client has to answer."""

    tool_call_id = TextField()
    tool_name = TextField()
    arguments = DocumentField()
    kind = ChoiceText(CALL_KINDS, required=False)
    approval_id = TextField(required=False, allow_null=True)
    deadline = MomentField(required=False, allow_null=True)
    response_schema = ObjectField(
        required=False, allow_null=True, help_text="A JSON Schema for the result; up to 32 KB."
    )
    approver = ChoiceText(APPROVERS, required=False)


class ChildWaitInput(Input):
    """A tool call whose result is the outcome of a sub-session."""

    parent_tool_call_id = TextField()
    sub_session_id = IdField()
    agent_type = IdField()


class SuspensionInput(Input):
    """The last step of a run that waits from now on."""

    kind = ChoiceText(SUSPENSIONS)
    state = StateInput()
    run_id = IdField()
    append_messages = ObjectsField(required=False)
    pending_calls = PendingCallInput(many=True, required=False)
    awaiting_children = ChildWaitInput(many=True, required=False)
    suspended_step_id = IdField(required=False, allow_null=True)
    suspension_context = DocumentField(required=False)
    checkpoint_meta = CheckpointMetaInput(required=False, allow_null=True)


class AnswerInput(Input):
    """An answer: exactly one of `result`, `error` and `approved`."""

    result = DocumentField(required=False, help_text="What a client's tool returned; up to 1 MB.")
    error = TextField(required=False, allow_null=True, help_text="Why there is no result; up to 8 KB.")
    approved = FlagField(required=False, allow_null=True, help_text="The decision on an approval.")
    reason = TextField(required=False, allow_null=True, help_text="Why it was decided so; up to 8 KB.")
    arguments = ArgumentsField(
        required=False, help_text="With an approval: what to execute in the place of the model's; up to 1 MB."
    )
    arguments_digest = TextField(
        required=False, allow_null=True, help_text="The digest of what was asked; another one is refused."
    )


class ToolResultInput(AnswerInput):
    """An answer to a tool call of this session, or of the tree whose root it is."""

    tool_call_id = TextField()
    approval_id = TextField(required=False, allow_null=True)
    remember = ChoiceText(
        REMEMBERED,
        required=False,
        allow_null=True,
        help_text="With an approval: allow the tool from now on, in this session or in all of its owner.",
    )


class AnswerLinkInput(Input):
    tool_call_id = TextField()
    may_edit = FlagField(required=False, help_text="Whether its holder may approve other arguments.")
    lifetime_seconds = WholeField(
        required=False,
        allow_null=True,
        min_value=1,
        help_text="Its lifetime in seconds, at most the setting.",
    )


class ResumeInput(Input):
    message = MessageField(required=False, help_text="A message object, or what a user said.")
    run_id = IdField(required=False, allow_null=True)


class SettlementInput(Input):
    """How a sub-session ended."""

    status = ChoiceText(TERMINAL_STATUSES)
    output = DocumentField(required=False)
    error = DocumentField(required=False, help_text="A string or an object.")


class RewindInput(Input):
    checkpoint_id = CheckpointIdField(help_text="Back to here, not to the latest one.")


class RunInput(Input):
    run_id = IdField(required=False, allow_null=True)
    metadata = ObjectField(required=False)


class RunUpdateInput(Input):
    status = ChoiceText(RUN_STATUSES)
    step_count = WholeField(required=False, allow_null=True, min_value=0)
    output = DocumentField(required=False)
    error = DocumentField(required=False, help_text="A string or an object.")
    usage = DocumentField(required=False)


class RefChangesInput(Input):
    agent_type = IdField(required=False)
    parent_tool_call_id = IdField(required=False, allow_null=True)
    status = ChoiceText(SESSION_STATUSES, required=False)
    mode = ChoiceText(REF_MODES, required=False)
    location = ChoiceText(REF_LOCATIONS, required=False)
    result = DocumentField(required=False)


class RefInput(RefChangesInput):
    sub_session_id = IdField()
    agent_type = IdField()


class RefsInput(Input):
    refs = RefInput(many=True)
