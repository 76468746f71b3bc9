"""Values that are stored under a key."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

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
    """A document that the driver of a session keeps with it, under a key."""

    session_id: str
    key: str
    document: JSON
    run_id: str | None
    """The run that wrote it, if it was given."""


FeedbackRating = Literal["up", "down"]
FEEDBACK_RATINGS: Final[tuple[FeedbackRating, ...]] = ("up", "down")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What a person thinks of an answer."""

    position: int
    """Of the message, when it was given."""
    message_seq: int
    """The number of the message's event, which no other message ever has."""
    rating: FeedbackRating
    comment: str | None
    by: str
    """Who gave it; empty if that is not known."""
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The response to a request, to be sent now, and again on a retry."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    replayed: bool = False
    """True for a retry: the response is the stored one, and nothing was done."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A binary content that is kept once, by its digest."""

    sha256: str
    """In hexadecimal digits."""
    size: int
    """In bytes."""
    media_type: str
