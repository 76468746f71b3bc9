"""Agents of pydantic-ai that settings name."""

import os
import time
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from helix_sessions.agents import current_turn, durable
from tests.agents.models import Script

with_deps = Agent(Script().model, deps_type=dict)


def note(line: str) -> None:
    """Into a file that the session's user names."""
    with Path(current_turn().state.user_id or "").open("a") as file:
        file.write(f"{line}\n")


def waits_for(name: str) -> None:
    """Until a file is there."""
    deadline = time.monotonic() + 60
    while not Path(f"{current_turn().state.user_id}.{name}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def clerk_says(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Calls both tools for a prompt, then says what they returned; a prompt with "slow" hangs once."""
    last: Any = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        note(f"asked {os.getpid()}")
        if "slow" in str(last.content):
            waits_for("go")
        return ModelResponse(
            parts=[ToolCallPart("look", {}, "c-look"), ToolCallPart("refund", {"order": 7}, "c-refund")]
        )
    said = [part.content for message in messages for part in message.parts if part.part_kind == "tool-return"]
    return ModelResponse(parts=[TextPart(" and ".join(map(str, said)))])


clerk = Agent(FunctionModel(clerk_says), name="clerk", instructions="You help customers.")


@clerk.tool_plain
def look() -> str:
    note("looked")
    if "hang" in str(current_turn().context.messages[0]["content"]):
        waits_for("go")
    return "seen"


@clerk.tool_plain(requires_approval=True)
def refund(order: int) -> str:
    note(f"refunded {order} {current_turn().idempotency_key}")
    return f"refunded {order}"


named = durable(clerk, name="named-clerk")
