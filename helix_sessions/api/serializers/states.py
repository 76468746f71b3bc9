"""The state, the status, the counters, the interrupt flag."""

from dataclasses import fields
from typing import Any

from helix_sessions.api.serializers.fields import (
    ChoiceText,
    DocumentField,
    IdField,
    Input,
    MomentField,
    ObjectField,
    ObjectsField,
    TextField,
    TextsField,
    WholeField,
)
from helix_sessions.types import MODES, SESSION_STATUSES, SessionState


class StateInput(Input):
    """A whole state, as it was read and then edited. What is left out takes its default, except `mode`,
    which never changes. What a caller does not own may be in it and is ignored."""

    custom_state = ObjectField(required=False)
    status = ChoiceText(SESSION_STATUSES, required=False)
    step_count = WholeField(required=False, min_value=0)
    output = DocumentField(required=False)
    error = TextField(required=False, allow_null=True)
    failure_reason = TextField(required=False, allow_null=True)
    interrupt_context = DocumentField(required=False)
    pending_client_tool_calls = ObjectField(required=False, allow_null=True)
    suspended_awaiting_children = ObjectField(required=False, allow_null=True)
    suspended_step_id = IdField(required=False, allow_null=True)
    suspension_context = DocumentField(required=False)
    completed_client_tool_calls = ObjectField(required=False, allow_null=True)
    client_tool_call_ownership = ObjectField(required=False, allow_null=True)
    tracing_context = DocumentField(required=False)
    location = DocumentField(required=False)
    expires_at = MomentField(required=False, allow_null=True)
    mode = ChoiceText(MODES, required=False)
    user_id = IdField(required=False, allow_null=True)
    tags = TextsField(required=False)
    metadata = ObjectField(required=False)
    workspace_ref = DocumentField(required=False)

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            data = {key: value for key, value in data.items() if key not in NOT_OWNED}
        return super().to_internal_value(data)


NOT_OWNED = frozenset(known.name for known in fields(SessionState)) - frozenset(StateInput().fields)
"""What a save ignores."""


class MergeInput(Input):
    writes = ObjectsField(help_text="StepWrites, or RFC 6902 operations.")


class StatusInput(Input):
    """A compare-and-set."""

    expected_statuses = TextsField(help_text="The statuses it may have now.")
    new_status = ChoiceText(SESSION_STATUSES)
    interrupt_context = DocumentField(required=False)
    error = TextField(required=False, allow_null=True)
    failure_reason = TextField(required=False, allow_null=True)


class StatusUpdateInput(Input):
    """A status by decree."""

    status = ChoiceText(SESSION_STATUSES)
    error = TextField(required=False, allow_null=True)
    failure_reason = TextField(required=False, allow_null=True)
    interrupt_context = DocumentField(required=False)
    output = DocumentField(required=False)


class InterruptInput(Input):
    reason = TextField(required=False, allow_null=True)
