"""Tool rules."""

from helix_sessions.api.serializers.fields import ChoiceText, IdField, Input, ObjectField
from helix_sessions.api.serializers.sessions import OwnerField
from helix_sessions.types import TOOL_DECISIONS


class ToolRuleInput(Input):
    tool = IdField(help_text="A name, or the beginning of names and `*`.")
    decision = ChoiceText(TOOL_DECISIONS)
    agent_type = IdField(required=False, allow_null=True)
    session_id = IdField(required=False, allow_null=True)
    owner = OwnerField(required=False)
    arguments = ObjectField(required=False, allow_null=True, help_text="Only calls with these arguments.")


class ToolRulesQuery(Input):
    tool = IdField(required=False)
    decision = ChoiceText(TOOL_DECISIONS, required=False)
    agent_type = IdField(required=False)
    session_id = IdField(required=False)
    owner = IdField(required=False)
