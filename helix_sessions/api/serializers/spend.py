"""Spend limits."""

from helix_sessions.api.serializers.fields import ChoiceText, DocumentField, FlagField, IdField, Input, shaped
from helix_sessions.types import SPEND_SCOPES, SPEND_WINDOWS

_DOLLARS = {"type": "number", "nullable": True, "minimum": 0}
_TOKENS = {"type": "integer", "nullable": True, "minimum": 0}
_SHARE = {"type": "number", "nullable": True, "minimum": 0, "exclusiveMinimum": True, "maximum": 1}


class SpendLimitInput(Input):
    scope = ChoiceText(SPEND_SCOPES)
    key = IdField(
        required=False,
        allow_null=True,
        help_text="The primary key of the owner as text, or the agent type; none for `all`.",
    )
    window = ChoiceText(SPEND_WINDOWS)
    usd = shaped(DocumentField, _DOLLARS)(required=False, help_text="US dollars.")
    tokens = shaped(DocumentField, _TOKENS)(required=False, help_text="Input and output tokens.")
    warn_at = shaped(DocumentField, _SHARE)(required=False, help_text="A share of the limit, such as 0.8.")
    enabled = FlagField(required=False)


class SpendQuery(Input):
    owner = IdField(required=False)
    agent_type = IdField(required=False)
