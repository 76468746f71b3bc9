"""Pending calls, sub-sessions, submissions, resumptions."""

from dataclasses import dataclass
from datetime import datetime

from helix_sessions.values.agents import AgentDefinition as AgentDefinition
from helix_sessions.values.agents import AgentSession as AgentSession
from helix_sessions.values.agents import AgentSessionInfo as AgentSessionInfo
from helix_sessions.values.agents import AgentState as AgentState
from helix_sessions.values.agents import Budget as Budget
from helix_sessions.values.agents import Execution as Execution
from helix_sessions.values.agents import StoredAt as StoredAt
from helix_sessions.values.basics import (
    JSON,
    CallKind,
    RefLocation,
    RefMode,
    SessionStatus,
    SubmissionOutcome,
)
from helix_sessions.values.runs import Run
from helix_sessions.values.sessions import SessionState


@dataclass(frozen=True, slots=True, kw_only=True)
class SubSessionRef:
    """A session's reference to a session it started."""

    sub_session_id: str
    agent_type: str
    parent_tool_call_id: str | None = None
    status: SessionStatus = "active"
    mode: RefMode = "ephemeral"
    location: RefLocation = "local"
    result: JSON = None
    created_at: StoredAt = None
    updated_at: StoredAt = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """A tool call that a person or a client has to answer."""

    tool_call_id: str
    tool_name: str
    arguments: JSON
    kind: CallKind = "client_tool"
    """`client_tool`: the answer is the tool's result. `approval`: a decision whether to execute it."""
    approval_id: str | None = None
    deadline: datetime | None = None
    """When to stop waiting; the call then has an error for its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildWait:
    """A tool call whose result is what a sub-session comes to."""

    parent_tool_call_id: str
    sub_session_id: str
    agent_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn that was begun: the session as it is now, and the run to execute."""

    state: SessionState
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What became of an answer."""

    outcome: SubmissionOutcome
    """`accepted`, `already_completed`, or `late`."""
    owner_session_id: str
    """The session whose call it is: the one to resume."""
    remaining: int
    """How many calls of that session are still unanswered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLink:
    """A link that lets whoever has it answer one tool call."""

    token: str
    """Fit for an address. It is a secret: whoever has it may answer."""
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCall:
    """What the holder of a link is asked."""

    tool_name: str
    arguments: JSON
    kind: CallKind
    """`client_tool`: a result is wanted. `approval`: a decision."""
    requested_at: datetime | None
    deadline: datetime | None
    is_answered: bool
    """Whether somebody has answered already."""
    expires_at: datetime
    """When the link stops being good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """A suspended or stopped session that goes on."""

    state: SessionState
    run: Run
    tool_messages: list[dict[str, JSON]]
    """The results that were added to the transcript, in the order of their calls."""
    approved: list[dict[str, JSON]]
    """The stored entries of approved calls, for the caller to execute and to add the results of."""
    respawn: list[SubSessionRef]
    """The sub-sessions that were failed when this session was suspended."""
