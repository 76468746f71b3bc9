"""Agents to send messages to."""

from dataclasses import dataclass, field
from typing import Any

from helix_sessions.runtime import TurnOutcome as Outcome


def says(text: str, **more: Any) -> Outcome:
    return Outcome({"role": "assistant", "content": text}, **more)


def calls(*names: str, **more: Any) -> Outcome:
    listed = [{"id": f"{name}-1", "name": name, "arguments": {"n": 1}} for name in names]
    return Outcome({"role": "assistant", "content": "", "tool_calls": listed}, **more)


@dataclass
class Scripted:
    """Gives these outcomes, one for each step, the last one over and over; raises what is an exception."""

    outcomes: list[Any]
    tools: dict[str, Any] = field(default_factory=dict)
    client_tools: tuple[str, ...] = ()
    approval_tools: tuple[str, ...] = ()
    turns: list[Any] = field(default_factory=list)

    def run_turn(self, turn: Any) -> Any:
        self.turns.append(turn)
        outcome = self.outcomes[min(len(self.turns), len(self.outcomes)) - 1]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class Asynchronous(Scripted):
    async def run_turn(self, turn: Any) -> Any:
        return super().run_turn(turn)
