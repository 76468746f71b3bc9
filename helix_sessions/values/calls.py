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
    Approver,
    CallKind,
    OwnerKey,
    RefLocation,
    RefMode,
    SessionStatus,
    SubmissionOutcome,
    ToolDecision,
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
    """When to stop waiting; the call then gets an error result."""
    response_schema: dict[str, JSON] | None = None
    """The JSON Schema that the result of a client's tool must fit."""
    approver: Approver = "driver"
    """Who may decide on an approval: `driver`, or `participant` of the session as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRule:
    """What becomes of calls of a tool. A selector that is `None` is any."""

    rule_id: str
    tool: str
    """A name, or the beginning of names and `*`."""
    decision: ToolDecision
    """`allow`: execute. `ask`: wait for an approval. `deny`: an error result, and nothing is executed."""
    agent_type: str | None = None
    session_id: str | None = None
    owner_id: OwnerKey = None
    arguments: dict[str, JSON] | None = None
    """Only calls with exactly these arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildWait:
    """A tool call whose result is the outcome of a sub-session."""

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
    """The outcome of an answer."""

    outcome: SubmissionOutcome
    """`accepted`, `already_completed`, or `late`."""
    owner_session_id: str
    """The session whose call it is: the one to resume."""
    remaining: int
    """How many calls of that session are still unanswered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLink:
    """A link that lets its holder answer one tool call."""

    token: str
    """Safe in a URL. It is a secret: its holder may answer."""
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCall:
    """The question to the holder of a link."""

    tool_name: str
    arguments: JSON
    kind: CallKind
    """`client_tool`: a result is wanted. `approval`: a decision."""
    requested_at: datetime | None
    deadline: datetime | None
    is_answered: bool
    """Whether the call has an answer already."""
    expires_at: datetime
    """When the link expires."""
    arguments_digest: str | None = None
    """What an answer names to be about these arguments and no others."""
    response_schema: dict[str, JSON] | None = None
    """The JSON Schema that the result must fit."""
    may_edit: bool = False
    """Whether the holder may approve with other arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """A suspended or stopped session that goes on."""

    state: SessionState
    run: Run
    tool_messages: list[dict[str, JSON]]
    """The results that were added to the transcript, in the order of their calls."""
    approved: list[dict[str, JSON]]
    """The stored entries of approved calls, for the caller to execute and to add the results of. `arguments`
    are those to execute, which the approver may have replaced."""
    respawn: list[SubSessionRef]
    """The sub-sessions that were failed when this session was suspended."""
