"""What drives a session: actions on it, the runtime that executes them, and the runner of its turns."""

from helix_sessions.runtime.actions.base import Action, StagedAction
from helix_sessions.runtime.actions.forks import ForkSession
from helix_sessions.runtime.actions.lifecycle import ClearSession, ResumeSession, SuspendSession
from helix_sessions.runtime.actions.messages import SendMessage
from helix_sessions.runtime.actions.settings import (
    ChangeBudget,
    ChangeModel,
    ChangeSystemPrompt,
    WriteMetadata,
)
from helix_sessions.runtime.actions.tasks import UpdateTask
from helix_sessions.runtime.agents import Agent
from helix_sessions.runtime.hooks import Hook
from helix_sessions.runtime.loop.runner import SessionRunner
from helix_sessions.runtime.session_runtime import SessionRuntime
from helix_sessions.runtime.sources import (
    CalledText,
    Environment,
    FileInstructions,
    FixedText,
    GlobFiles,
    SettingText,
    Skills,
    StoredInstructions,
    TextSource,
    Today,
    UrlText,
    configured_sources,
)
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.types import (
    UNAVAILABLE,
    CompactionPolicy,
    ContextSource,
    RetryPolicy,
    RunOutcome,
    Spawn,
    SummaryRequest,
    ToolResult,
    TurnOutcome,
    chars_over_four,
)
from helix_sessions.values.agents import (
    AgentDefinition,
    AgentSession,
    AgentSessionInfo,
    AgentState,
    Budget,
    Execution,
)

__all__ = [
    "UNAVAILABLE",
    "Action",
    "Agent",
    "AgentDefinition",
    "AgentSession",
    "AgentSessionInfo",
    "AgentState",
    "Budget",
    "CalledText",
    "ChangeBudget",
    "ChangeModel",
    "ChangeSystemPrompt",
    "ClearSession",
    "CompactionPolicy",
    "ContextSource",
    "Environment",
    "Execution",
    "FileInstructions",
    "FixedText",
    "ForkSession",
    "GlobFiles",
    "Hook",
    "ResumeSession",
    "RetryPolicy",
    "RunOutcome",
    "SendMessage",
    "SessionRunner",
    "SessionRuntime",
    "SettingText",
    "Skills",
    "Spawn",
    "StagedAction",
    "StoredInstructions",
    "SummaryRequest",
    "SuspendSession",
    "TextSource",
    "Today",
    "ToolResult",
    "TurnContext",
    "TurnOutcome",
    "UpdateTask",
    "UrlText",
    "WriteMetadata",
    "chars_over_four",
    "configured_sources",
]
