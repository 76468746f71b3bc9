"""Agents that settings name."""

import os
import time
from pathlib import Path
from typing import Any

from helix_sessions.runtime import TurnContext, TurnOutcome
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.values.tools import ToolOptions

polite = ScriptedAgent()


class Noting:
    """Calls one tool for each prompt, which notes the prompt in a file named by the session's user."""

    client_tools = ()
    approval_tools = ()

    def __init__(self) -> None:
        self.tools = {"note": self.note}

    def note(self, arguments: Any, turn: TurnContext) -> str:
        with Path(turn.state.user_id or "").open("a") as file:
            file.write(f"{turn.session_id} {arguments['what']}\n")
        return "noted"

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        last = turn.context.messages[-1]
        time.sleep(0.005)
        return TurnOutcome(calls("note", what=last["content"]) if last["role"] == "user" else "done")


class Hanging:
    """Makes the file that is named by the session's user, and then does not come back. Who finds the file
    answers at once."""

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        found = Path(turn.state.user_id or "")
        if found.exists():
            return TurnOutcome("by another")
        found.touch()
        time.sleep(600)
        return TurnOutcome("late")


class Shop:
    """Calls the tool that a prompt names, and says what it was told. Payments are noted in a file."""

    tool_options = {
        "refund": ToolOptions(approval=True),
        "lend": ToolOptions(approval="participant"),
        "locate": ToolOptions(
            client=True,
            response_schema={"type": "object", "required": ["city"], "additionalProperties": False}
            | {"properties": {"city": {"type": "string"}}},
        ),
    }

    def __init__(self) -> None:
        self.tools = {"refund": self.pay, "lend": self.pay}

    def pay(self, arguments: Any, turn: TurnContext) -> str:
        with Path(os.environ["HELIX_TEST_PAYMENTS"]).open("a") as file:
            file.write(f"{arguments['cents']}\n")
        return "paid"

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        last = turn.context.messages[-1]
        if last["role"] != "user":
            return TurnOutcome(f"I was told: {last['content']}")
        call = {"id": f"call-{last['id']}", "name": last["content"], "arguments": {"cents": 500}}
        return TurnOutcome({"role": "assistant", "content": "", "tool_calls": [call]})


def broken() -> Any:
    return object()


class Sleepy:
    """Takes long."""

    client_tools = ()
    approval_tools = ()
    tools: dict[str, Any] = {}

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        time.sleep(60)
        return TurnOutcome("done")
