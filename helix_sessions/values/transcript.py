"""Messages and events."""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import ClassVar

from helix_sessions.values.agents import AgentDefinition as AgentDefinition
from helix_sessions.values.agents import AgentSession as AgentSession
from helix_sessions.values.agents import AgentSessionInfo as AgentSessionInfo
from helix_sessions.values.agents import AgentState as AgentState
from helix_sessions.values.agents import Budget as Budget
from helix_sessions.values.agents import Execution as Execution
from helix_sessions.values.agents import StoredAt as StoredAt
from helix_sessions.values.basics import JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResult:
    """Where appended messages went."""

    first_position: int
    message_count: int
    version: int
    head_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """A range of a transcript."""

    messages: list[dict[str, JSON]]
    total: int
    """How many messages the transcript has."""
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTexts:
    """A range of a transcript as the JSON texts that are stored."""

    texts: list[str]
    total: int
    """How many messages the transcript has."""
    version: int
    next_cursor: str | None
    """What to pass as `cursor` for the messages after these; `None` where the transcript ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTexts:
    """A range of a log, each event as a JSON text of the fields of `EventRecord`."""

    texts: list[str]
    next_cursor: str | None
    """What to pass as `cursor` for the events after these; `None` where the range ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """One entry of a session's log."""

    session_id: str
    seq: int
    type: str
    data: JSON
    turn_id: str | None
    run_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """Something for the readers of this moment: a piece of text, progress. Those of a turn belong to a
    message, and are kept until it is committed."""

    session_id: str
    data: JSON
    after_seq: int
    """The number of the session's last event when it was published."""
    turn_id: str | None = None
    """The turn that says the message."""
    message_id: str | None = None
    """Which message it is a piece of; another attempt is another message. `None`: of none."""
    index: int | None = None
    """Its place in the message. It rises, and what a reader is told at once may be several pieces in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedMessage:
    """An event seen as a line of classic message history."""

    dangling: ClassVar[bool] = False
    """Whether this is a tool call without a result in the range."""

    role: str
    content: JSON
    tool_call_id: str | None
    seq: int
    created_at: datetime


class DanglingCall(ProjectedMessage):
    """A tool call that has no result in the range. It equals the plain message; only `dangling` differs."""

    __slots__ = ()
    dangling: ClassVar[bool] = True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProjectedMessage):
            return NotImplemented
        return [getattr(self, each.name) for each in fields(self)] == [
            getattr(other, each.name) for each in fields(other)
        ]

    __hash__ = ProjectedMessage.__hash__
