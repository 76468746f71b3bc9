"""What is kept under a key."""

from dataclasses import dataclass, field

from helix_sessions.values.agents import AgentDefinition as AgentDefinition
from helix_sessions.values.agents import AgentSession as AgentSession
from helix_sessions.values.agents import AgentSessionInfo as AgentSessionInfo
from helix_sessions.values.agents import AgentState as AgentState
from helix_sessions.values.agents import Budget as Budget
from helix_sessions.values.agents import Execution as Execution
from helix_sessions.values.agents import StoredAt as StoredAt
from helix_sessions.values.basics import JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A document that whoever drives a session keeps with it, under a key of its own."""

    session_id: str
    key: str
    document: JSON
    run_id: str | None
    """The run that wrote it, if it was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a request was answered, ready to be sent, or to be kept and sent again."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    replayed: bool = False
    """True when this answer was given before and nothing was done now."""
