"""What drives a session: actions, and the runtime that loads, acts, saves and announces."""

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
from helix_sessions.runtime.hooks import Hook
from helix_sessions.runtime.session_runtime import SessionRuntime

__all__ = [
    "Action",
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
    "SendMessage",
    "SessionRuntime",
    "StagedAction",
    "SuspendSession",
    "UpdateTask",
    "WriteMetadata",
]
