"""The agent. Without OPENAI_API_KEY a few lines of script stand in for the model."""

import os
import re

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from helix_sessions.agents import current_turn

PAID_BACK = {}
"""What the payment provider knows, by idempotency key."""


def script(messages, info):
    last = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        order = int(re.search(r"\d+", last.content)[0])
        return ModelResponse([ToolCallPart("refund", {"order": order, "cents": 4990})])
    return ModelResponse([TextPart(f"Thank you for waiting. {last.content}")])


support = Agent(
    "openai:gpt-5-mini" if os.environ.get("OPENAI_API_KEY") else FunctionModel(script),
    name="support",
    instructions="You answer customers of a shop. Refund broken goods; a colleague approves each refund.",
)


@support.tool_plain(requires_approval=True)
def refund(order: int, cents: int) -> str:
    """Pay money back for an order."""
    PAID_BACK[current_turn().idempotency_key] = cents
    return f"{cents / 100:.2f} € were paid back for order {order}."
