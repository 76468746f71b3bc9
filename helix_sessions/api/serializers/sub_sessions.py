"""References to sub-sessions."""

from helix_sessions.api.serializers.fields import ChoiceText, DocumentField, IdField, Input
from helix_sessions.types import REF_LOCATIONS, REF_MODES, SESSION_STATUSES


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
