"""What drives a session."""

from helix_sessions.runtime.agents import Agent
from helix_sessions.runtime.runner import SessionRunner
from helix_sessions.runtime.sources import (
    CalledText,
    FileInstructions,
    FixedText,
    SettingText,
    StoredInstructions,
    TextSource,
    Today,
    configured_sources,
)
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.types import (
    UNAVAILABLE,
    CompactionPolicy,
    ContextSource,
    RunOutcome,
    SummaryRequest,
    ToolResult,
    TurnOutcome,
    chars_over_four,
)

__all__ = [
    "UNAVAILABLE",
    "Agent",
    "CalledText",
    "CompactionPolicy",
    "ContextSource",
    "FileInstructions",
    "FixedText",
    "RunOutcome",
    "SessionRunner",
    "SettingText",
    "StoredInstructions",
    "SummaryRequest",
    "TextSource",
    "Today",
    "ToolResult",
    "TurnContext",
    "TurnOutcome",
    "chars_over_four",
    "configured_sources",
]
