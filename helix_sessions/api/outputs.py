"""The types of what the API sends besides the values of the store."""

from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict

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

    items: list[dict[str, JSON]]
    total: int
    """How many messages the transcript has."""
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
    next_cursor: str | None
    """Always `None`: they are on one page."""


class MadeCompaction(TypedDict):
    """The outcome of a compaction."""

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
    """A request for a run that was stored; a worker takes it up."""

    scheduled: bool
    runnable_at: datetime | None
    """From when on; `None` while the session waits for answers, which it follows."""


class HeldLease(TypedDict):
    """The right to drive a session."""

    session_id: str
    owner: str
    fence: int
    """What writes under this lease carry as `Helix-Fence`."""
    expires_at: datetime


class Polled(TypedDict):
    """What a long poll answers."""

    items: list[EventRecord]
    after: int
    """Where the next one begins."""
    closed: bool
    """Whether there is nothing more to come."""


class StreamTicket(TypedDict):
    """An address that opens the stream of one session, for a short time."""

    url: str
    """A secret: its holder may read."""
    expires_at: datetime


class BlobAddress(TypedDict):
    """An address that downloads one attachment, for a short time."""

    url: str
    """A secret: its holder may read."""
    expires_at: datetime


class UIMessage(TypedDict):
    """A message of a chat in the form of the AI SDK."""

    id: str
    role: Literal["user", "assistant"]
    parts: list[dict[str, JSON]]


class AnswerLink(TypedDict):
    """A link that lets its holder answer one tool call."""

    token: str
    """A secret: its holder may answer."""
    url: str
    """Where the token is used."""
    expires_at: datetime


class Outcome(TypedDict):
    """The outcome of an answer."""

    outcome: SubmissionOutcome


class AgentState(TypedDict):
    """The state of a session. The messages have pages of their own."""

    message_count: int
    """The messages are at `messages/`."""
    metadata: dict[str, JSON]
    system_prompt: str
    model: JSON
    budget: Budget | None
    execution_count: int
    """How many executions have started."""
    execution: Execution | None


class AgentSession(TypedDict):
    """A session as the runtime saved it."""

    info: AgentSessionInfo
    definition: AgentDefinition
    state: AgentState
