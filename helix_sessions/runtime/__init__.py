"""What drives a session."""

from helix_sessions.runtime.agents import Agent
from helix_sessions.runtime.runner import SessionRunner
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.types import RunOutcome, ToolResult, TurnOutcome

__all__ = [
    "Agent",
    "RunOutcome",
    "SessionRunner",
    "ToolResult",
    "TurnContext",
    "TurnOutcome",
]
