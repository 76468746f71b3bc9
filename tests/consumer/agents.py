"""Agents as the documentation writes them."""

from collections.abc import Mapping
from typing import Any

from helix_sessions.agents import ScriptedAgent, ToolOptions, current_turn
from helix_sessions.runtime import Agent, RetryPolicy, SessionRunner, TurnContext
from helix_sessions.types import TurnOutcome


def look_up(arguments: Mapping[str, Any], turn: TurnContext) -> dict[str, str]:
    return {"place": "depot", "key": str(current_turn().idempotency_key)}


class Plain:
    """The least there is."""

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        return TurnOutcome({"role": "assistant", "content": str(turn.context.messages[-1]["content"])})


class Async:
    async def run_turn(self, turn: TurnContext) -> TurnOutcome:
        return TurnOutcome({"role": "assistant", "content": "done"}, output={"ok": True})


class Terse:
    """It says a string."""

    def run_turn(self, turn: TurnContext) -> str:
        return "done"


class Support:
    """With everything an agent may have."""

    tools = {"look_up": look_up}
    client_tools = ("ask_customer",)
    approval_tools = frozenset({"refund"})
    subagents = {"research": "researcher"}
    tool_options = {"look_up": ToolOptions(retries=2, timeout=5)}
    retry = RetryPolicy(max_attempts=2)
    turn_timeout = 30.0

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        return TurnOutcome({"role": "assistant", "content": turn.definition.model or ""})


class Framework:
    """An agent of a framework has a name."""

    name = "support"


AGENTS: list[Agent] = [Plain(), Async(), Terse(), Support(), ScriptedAgent("Good day.")]

RUNNERS = [SessionRunner(agent, turn_limit=3) for agent in AGENTS]
RUNNERS.append(SessionRunner(Framework()))


class Wrong:
    def run_turn(self, turn: TurnContext) -> int:
        return 3


SessionRunner(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
SessionRunner(Wrong())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
SessionRunner("shop.agents.support")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
