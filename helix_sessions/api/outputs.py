"""What the API sends besides the values of the store: JSON objects, by the types their keys have."""

from datetime import datetime
from typing import Any, NotRequired, TypedDict

from helix_sessions.types import (
    JSON,
    AgentDefinition,
    AgentSessionInfo,
    Budget,
    Checkpoint,
    Compaction,
    EventRecord,
    Execution,
    InputReceipt,
    InterruptRequest,
    ModelContext,
    Page,
    ProjectedMessage,
    Run,
    SessionStatus,
    SessionSummary,
    StagedChange,
    SubmissionOutcome,
    SubSessionRef,
)

NAMES: dict[Any, str] = {
    EventRecord: "Event",
    ModelContext: "Context",
    Page[SessionSummary]: "SessionPage",
    Page[SubSessionRef]: "SubSessionPage",
    Page[InputReceipt]: "InputPage",
    Page[StagedChange]: "StagedPage",
    Page[ProjectedMessage]: "Projection",
}
"""The components that have another name than their type, because clients are generated with it."""


class Problem(TypedDict):
    """What is wrong with a request (RFC 9457)."""

    type: str
    """A URI that stands for `code`."""
    title: str
    status: int
    code: str
    """Stable across releases."""
    detail: str
    """For people."""
    errors: NotRequired[JSON]
    """What is wrong with each key of the request."""
    expected_version: NotRequired[int]
    current_version: NotRequired[int]
    current_status: NotRequired[str]
    tool_call_ids: NotRequired[list[str]]
    """The tool calls a session waits for."""
    sub_session_ids: NotRequired[list[str]]
    """The sub-sessions a session waits for."""
    first_available_seq: NotRequired[int]
    """The first event that is not archived."""
    owner: NotRequired[str]
    """Who drives the session."""
    expires_at: NotRequired[datetime]
    """When the owner's lease ends."""


class Root(TypedDict):
    """Where to begin."""

    sessions: str
    """The address of the sessions."""


class Version(TypedDict):
    """The session's version after the call."""

    version: int


class Metadata(TypedDict):
    """The metadata of a session."""

    metadata: dict[str, JSON]
    version: int


class Status(TypedDict):
    """The status of a session."""

    status: SessionStatus
    version: int


class Counters(TypedDict):
    """The counters of a session."""

    step_count: int
    resume_count: int
    version: int


class Count(TypedDict):
    """A counter after it was raised."""

    value: int


class Interrupt(TypedDict):
    """The interrupt flag of a session."""

    interrupt: InterruptRequest | None
    """`None` while no interrupt is requested."""


class Attached(TypedDict):
    """The end of a session's log."""

    head_seq: int
    """The number of the last event."""


class MessagePage(TypedDict):
    """A page of a transcript."""

    messages: list[dict[str, JSON]]
    total: int
    """How many messages the transcript has."""
    has_more: bool
    next_cursor: str | None
    """What to pass as `cursor` for the messages after these; `None` on the last page."""


class MessageCount(TypedDict):
    """The length of a transcript."""

    message_count: int


class Removed(TypedDict):
    """How much a call removed."""

    removed: int


class Compactions(TypedDict):
    """The compactions of a transcript, oldest first."""

    items: list[Compaction]


class MadeCompaction(TypedDict):
    """What came of a compaction."""

    compaction: Compaction | None
    """`None` when there was nothing to do."""


class CurrentRun(TypedDict):
    """The running run of a session."""

    run: Run | None
    """`None` while no run is running."""


class LatestCheckpoint(TypedDict):
    """The checkpoint of a session that was written last."""

    checkpoint: Checkpoint | None
    """`None` while the session has none."""


class Scheduled(TypedDict):
    """Whether a worker will take the session up."""

    scheduled: bool


class AnswerLink(TypedDict):
    """A link that lets its holder answer one tool call."""

    token: str
    """A secret: its holder may answer."""
    url: str
    """Where the token is used."""
    expires_at: datetime


class Outcome(TypedDict):
    """What became of an answer."""

    outcome: SubmissionOutcome


class AgentState(TypedDict):
    """What a session has become. The messages have pages of their own."""

    message_count: int
    """The messages are at `messages/`."""
    metadata: dict[str, JSON]
    system_prompt: str
    model: JSON
    budget: Budget | None
    execution_count: int
    """How many executions were begun."""
    execution: Execution | None


class AgentSession(TypedDict):
    """A session as the runtime saved it."""

    info: AgentSessionInfo
    definition: AgentDefinition
    state: AgentState
