"""Checkpoints, commits, staged changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from helix_sessions.exceptions import InvalidInput
from helix_sessions.values.agents import AgentDefinition as AgentDefinition
from helix_sessions.values.agents import AgentSession as AgentSession
from helix_sessions.values.agents import AgentSessionInfo as AgentSessionInfo
from helix_sessions.values.agents import AgentState as AgentState
from helix_sessions.values.agents import Budget as Budget
from helix_sessions.values.agents import Execution as Execution
from helix_sessions.values.agents import StoredAt as StoredAt
from helix_sessions.values.basics import JSON, CheckpointSource, SessionStatus
from helix_sessions.values.sessions import SessionState


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMeta:
    """The options of a checkpoint that a write creates."""

    checkpoint_id: str | None = None
    """Repeating a commit with the same id returns the first result instead of writing again."""
    step_id: str | None = None
    """Promote only what was staged under this step."""
    run_id: str | None = None
    metadata: dict[str, JSON] = field(default_factory=dict)

    @classmethod
    def of(cls, value: "CheckpointMeta | Mapping[str, Any]") -> "CheckpointMeta":
        """The meta itself, or one made from a dict with the same keys."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise InvalidInput("A checkpoint meta is a CheckpointMeta or a dict with its keys.")
        known = [field.name for field in fields(cls)]
        if set(value) - set(known):
            raise InvalidInput(f"A checkpoint meta has no other keys than {', '.join(known)}.")
        return cls(**value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """The outcome of a commit."""

    version: int
    checkpoint_id: str | None
    message_count: int
    head_seq: int
    replayed: bool = False
    """True for a retry: the commit exists already, and nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A committed boundary of a session."""

    checkpoint_id: str
    session_id: str
    step_count: int
    status: SessionStatus
    source: CheckpointSource
    state: SessionState
    """The state at the checkpoint."""
    message_count: int
    run_id: str | None
    step_id: str | None
    metadata: dict[str, JSON]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedChange:
    """Writes of a tool that the next commit of its step applies."""

    step_id: str
    tool_call_id: str
    writes: list[dict[str, JSON]]
    staged_at: datetime
