"""What drives a session: actions on it, the runtime that executes them, and the runner of its turns."""

from helix_sessions.agents import (
    AgentDefinition,
    AgentSession,
    AgentSessionInfo,
    AgentState,
    Budget,
    Execution,
)
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
from helix_sessions.runtime.runner import SessionRunner
from helix_sessions.runtime.session_runtime import SessionRuntime
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.types import RunOutcome, ToolResult, TurnOutcome

__all__ = [
    "Action",
    "Agent",
    "AgentDefinition",
    "AgentSession",
    "AgentSessionInfo",
    "AgentState",
    "Budget",
    "ChangeBudget",
    "ChangeModel",
    "ChangeSystemPrompt",
    "ClearSession",
    "Execution",
    "ForkSession",
    "Hook",
    "ResumeSession",
    "RunOutcome",
    "SendMessage",
    "SessionRunner",
    "SessionRuntime",
    "StagedAction",
    "SuspendSession",
    "ToolResult",
    "TurnContext",
    "TurnOutcome",
    "UpdateTask",
    "WriteMetadata",
]
