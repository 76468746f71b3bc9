"""Turns with their runs and sub-sessions: begun, suspended, answered, resumed."""

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
    CALL_KINDS,
    REF_LOCATIONS,
    REF_MODES,
    RUN_STATUSES,
    SESSION_STATUSES,
    SUSPENSIONS,
    TERMINAL_STATUSES,
)

_OBJECT = {"type": "object", "additionalProperties": {}}

MessageField = shaped(DocumentField, {"oneOf": [{"type": "string"}, _OBJECT, {"type": "null"}]})
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


class ChildWaitInput(Input):
    """A tool call whose result is what a sub-session comes to."""

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


class ToolResultInput(AnswerInput):
    """An answer to a tool call of this session, or of the tree whose root it is."""

    tool_call_id = TextField()
    approval_id = TextField(required=False, allow_null=True)


class AnswerLinkInput(Input):
    tool_call_id = TextField()
    lifetime_seconds = WholeField(
        required=False,
        allow_null=True,
        min_value=1,
        help_text="How long it is good, if shorter than it may be.",
    )


class ResumeInput(Input):
    message = MessageField(required=False, help_text="A message object, or what a user said.")
    run_id = IdField(required=False, allow_null=True)


class SettlementInput(Input):
    """How a sub-session ended."""

    status = ChoiceText(TERMINAL_STATUSES)
    output = DocumentField(required=False)
    error = TextField(required=False, allow_null=True)


class RewindInput(Input):
    checkpoint_id = CheckpointIdField(help_text="Back to here, not to the latest one.")


class RunInput(Input):
    run_id = IdField(required=False, allow_null=True)
    metadata = ObjectField(required=False)


class RunUpdateInput(Input):
    status = ChoiceText(RUN_STATUSES)
    step_count = WholeField(required=False, allow_null=True, min_value=0)
    output = DocumentField(required=False)
    error = TextField(required=False, allow_null=True)
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
