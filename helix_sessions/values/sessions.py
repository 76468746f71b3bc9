"""A session: its state, its summary, the outcome of a compare-and-set."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from helix_sessions.values.agents import AgentDefinition as AgentDefinition
from helix_sessions.values.agents import AgentSession as AgentSession
from helix_sessions.values.agents import AgentSessionInfo as AgentSessionInfo
from helix_sessions.values.agents import AgentState as AgentState
from helix_sessions.values.agents import Budget as Budget
from helix_sessions.values.agents import Execution as Execution
from helix_sessions.values.agents import StoredAt as StoredAt
from helix_sessions.values.basics import JSON, CheckpointSource, OwnerKey, SessionMode, SessionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session as listings show it, without its documents."""

    session_id: str
    agent_type: str
    status: SessionStatus
    version: int
    step_count: int
    message_count: int
    user_id: str | None
    owner_id: OwnerKey
    tags: tuple[str, ...]
    parent_session_id: str | None
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHead:
    """What changes about a session with each call, and its owner: for preconditions and counters."""

    session_id: str
    agent_type: str
    owner_id: OwnerKey
    status: SessionStatus
    version: int
    head_seq: int
    first_seq: int
    """The first event that is in the log; those before it are in the archive."""
    message_count: int
    step_count: int
    resume_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """Everything a process needs to continue a session.

    A caller edits one with `dataclasses.replace`.
    """

    session_id: str
    agent_type: str
    stream_id: str | None = None
    custom_state: dict[str, JSON] = field(default_factory=dict)
    """The agent's own document."""
    status: SessionStatus = "active"
    step_count: int = 0
    output: JSON = None
    error: JSON = None
    """As it was given; a runner writes `{code, message, type, attempt, fingerprint}`."""
    failure_reason: str | None = None
    interrupt_context: JSON = None
    pending_client_tool_calls: dict[str, JSON] | None = None
    """Tool call id to the entry that waits for a person or a client."""
    suspended_awaiting_children: dict[str, JSON] | None = None
    """Parent tool call id to the sub-session it waits for."""
    suspended_step_id: str | None = None
    suspension_context: JSON = None
    completed_client_tool_calls: dict[str, JSON] | None = None
    """On the root: tool call id to when its answer was consumed."""
    client_tool_call_ownership: dict[str, JSON] | None = None
    """On the root: tool call id to the session of the tree that waits for it."""
    tracing_context: JSON = None
    location: JSON = None
    expires_at: datetime | None = None
    parent_session_id: str | None = None
    root_session_id: str | None = None
    forked_from: tuple[str, str | None] | None = None
    """The source session, and its checkpoint or `None`, if this session is a branch."""
    mode: SessionMode = "standard"
    version: int = 1
    """Rises by one with every change; what `expected_version` is compared with."""
    resume_count: int = 0
    head_seq: int = 0
    """The number of the last event."""
    message_count: int = 0
    checkpoint_id: str | None = None
    checkpointed_at: datetime | None = None
    checkpoint_source: CheckpointSource | None = None
    owner_id: OwnerKey = None
    user_id: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, JSON] = field(default_factory=dict)
    workspace_ref: JSON = None
    created_at: StoredAt = None
    updated_at: StoredAt = None
    runnable_at: datetime | None = None
    """From when on a driver has something to do; `None`: nothing. A save does not set it."""
    last_agent_activity_at: datetime | None = None
    """The agent's last sign: a run, a turn, a lease or an event of its own. A save does not set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CasOk:
    """The compare-and-set took place."""

    ok: Literal[True] = True
    new_version: int

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class CasMismatch:
    """The compare-and-set found something else; nothing changed."""

    ok: Literal[False] = False
    current_status: str
    current_version: int

    def __bool__(self) -> bool:
        return False
