"""An agent that says what it is told to: for tests, documentation and trying things out."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.types import TurnOutcome


class ScriptedAgent:
    """Each turn is answered by the next line of the script: a string, a message, a `TurnOutcome`, an
    exception to raise, or a function of the turn that returns one of these. The lines are arguments, or one
    list. When the script is at its end, the last user message is echoed."""

    def __init__(
        self,
        *outcomes: Any,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        client_tools: Collection[str] = (),
        approval_tools: Collection[str] = (),
        subagents: Mapping[str, str] | None = None,
        tool_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.tools = dict(tools or {})
        self.client_tools = client_tools
        self.approval_tools = approval_tools
        self.subagents = dict(subagents or {})
        self.tool_options = dict(tool_options or {})
        is_listed = len(outcomes) == 1 and isinstance(outcomes[0], list | tuple | Iterator)
        script: Iterable[Any] = outcomes[0] if is_listed else outcomes
        self.turns: list[TurnContext] = []
        """The turns it was asked for, in order."""
        self._script = iter(list(script))
        self._lock = threading.Lock()

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        with self._lock:
            self.turns.append(turn)
            line = next(self._script, echo)
        return _outcome(line(turn) if callable(line) and not isinstance(line, type) else line)


def calls(*names: str, **arguments: Any) -> dict[str, Any]:
    """An assistant message that calls these tools, each with the arguments, as `call-1`, `call-2` …"""
    listed = [
        {"id": f"call-{number}", "name": name, "arguments": arguments} for number, name in enumerate(names, 1)
    ]
    return {"role": "assistant", "content": "", "tool_calls": listed}


def echo(turn: TurnContext) -> TurnOutcome:
    """The last user message again."""
    said = [message.get("content") for message in turn.context.messages if message["role"] == "user"]
    return TurnOutcome({"role": "assistant", "content": said[-1] if said else ""})


def _outcome(line: Any) -> TurnOutcome:
    if isinstance(line, Exception):
        raise line
    return line if isinstance(line, TurnOutcome) else TurnOutcome(line)
