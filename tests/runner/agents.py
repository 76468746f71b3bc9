"""Agents that settings name."""

import time
from pathlib import Path
from typing import Any

from helix_sessions.runtime import TurnContext, TurnOutcome
from helix_sessions.runtime.scripted import ScriptedAgent, calls

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


def broken() -> Any:
    return object()
