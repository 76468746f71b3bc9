"""The values that go into the store and come out of it: frozen, keyword-only, compared by content."""

import enum
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from helix_sessions.agents import AgentDefinition as AgentDefinition
from helix_sessions.agents import AgentSession as AgentSession
from helix_sessions.agents import AgentSessionInfo as AgentSessionInfo
from helix_sessions.agents import AgentState as AgentState
from helix_sessions.agents import Budget as Budget
from helix_sessions.agents import Execution as Execution
from helix_sessions.exceptions import InvalidInput

JSON: TypeAlias = Any
"""A value RFC 8259 allows: None, bool, int, float, str, list or dict with string keys."""

Message: TypeAlias = Mapping[str, Any]
"""A JSON object with a `role`."""

T = TypeVar("T")


class Writable(Protocol):
    """A text file, or anything one can write text to."""

    def write(self, text: str, /) -> Any: ...


class Unset(enum.Enum):
    """The type of `UNSET`."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
"""The default of an argument for which `None` is a value."""

SESSION_STATUSES: Final = ("active", "completed", "failed", "interrupted", "paused")
TERMINAL_STATUSES: Final = ("completed", "failed")
TOMBSTONE: Final = "deleted"
"""The status of a session that is treated as absent by everybody but the `SessionRuntime`, which gave it."""
PRUNED_STATUSES: Final = (*TERMINAL_STATUSES, TOMBSTONE)
UNFINISHED_STATUSES: Final = ("active", "interrupted", "paused")
RUN_STATUSES: Final = (
    "running",
    "completed",
    "failed",
    "interrupted",
    "suspended_client_tool",
    "suspended_awaiting_children",
    "suspended_step_partial",
)
MODES: Final = ("standard", "persistent")
ROLES: Final = ("user", "assistant", "tool", "system")
CHECKPOINT_SOURCES: Final = ("save", "staging")
REF_MODES: Final = ("ephemeral", "persistent")
REF_LOCATIONS: Final = ("local", "remote")
SUSPENSIONS: Final = ("client_tool", "awaiting_children", "step_partial")
CALL_KINDS: Final = ("client_tool", "approval")
DELIVERIES: Final = ("steer", "queue")
SUBMISSION_OUTCOMES: Final = ("accepted", "already_completed", "late")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A piece of a listing."""

    items: list[T]
    """The rows, in the listing's order."""
    next_cursor: str | None
    """What to pass as `cursor` for the rows after these; `None` on the last page."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session as listings show it, without its documents."""

    session_id: str
    agent_type: str
    status: str
    version: int
    step_count: int
    message_count: int
    user_id: str | None
    owner_id: Any
    tags: tuple[str, ...]
    parent_session_id: str | None
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHead:
    """What may change about a session with each call, and whose it is: for preconditions and counters."""

    session_id: str
    agent_type: str
    owner_id: Any
    status: str
    version: int
    head_seq: int
    message_count: int
    step_count: int
    resume_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """Everything a process needs to go on with a session. Edit one with `dataclasses.replace`."""

    session_id: str
    agent_type: str
    stream_id: str | None = None
    custom_state: dict[str, JSON] = field(default_factory=dict)
    """The agent's own document."""
    status: str = "active"
    step_count: int = 0
    output: JSON = None
    error: str | None = None
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
    """The source session and its checkpoint, if this session is a branch."""
    mode: str = "standard"
    version: int = 1
    """Rises by one with every change; what `expected_version` is compared with."""
    resume_count: int = 0
    head_seq: int = 0
    """The number of the last event."""
    message_count: int = 0
    checkpoint_id: str | None = None
    checkpointed_at: datetime | None = None
    checkpoint_source: str | None = None
    owner_id: Any = None
    user_id: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, JSON] = field(default_factory=dict)
    workspace_ref: JSON = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMeta:
    """What a caller may say of the checkpoint a write makes."""

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
    """What a commit left behind."""

    version: int
    checkpoint_id: str | None
    message_count: int
    head_seq: int
    replayed: bool = False
    """True when this commit had been made before and nothing was written now."""


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
class Run:
    """One execution inside a session."""

    run_id: str
    session_id: str
    turn: int
    status: str
    step_count: int
    start_sequence: int
    """The session's `head_seq` just before the run."""
    end_sequence: int | None
    """The number of the event that ended it."""
    output: JSON
    error: str | None
    usage: JSON
    metadata: dict[str, JSON]
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A committed boundary of a session."""

    checkpoint_id: str
    session_id: str
    step_count: int
    status: str
    source: str
    state: SessionState
    """The state as it was."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A document that whoever drives a session keeps with it, under a key of its own."""

    session_id: str
    key: str
    document: JSON
    run_id: str | None
    """The run that wrote it, if it was said."""


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
    """Something for whoever reads along at this moment: a piece of text, progress. It is never stored."""

    session_id: str
    data: JSON
    after_seq: int
    """The number of the session's last event when it was published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """What a recovery left behind."""

    prior_head: int
    """The number of the last event before it."""
    head_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptRequest:
    """Somebody asked the session to stop."""

    reason: str | None
    requested_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SubSessionRef:
    """A session's reference to a session it started."""

    sub_session_id: str
    agent_type: str
    parent_tool_call_id: str | None = None
    status: str = "active"
    mode: str = "ephemeral"
    location: str = "local"
    result: JSON = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """A tool call that a person or a client has to answer."""

    tool_call_id: str
    tool_name: str
    arguments: JSON
    kind: str = "client_tool"
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

    outcome: str
    """`accepted`, `already_completed`, or `late`."""
    owner_session_id: str
    """The session whose call it is."""
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
    kind: str
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


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReceipt:
    """A prompt that was admitted to a session's inbox."""

    input_id: str
    session_id: str
    prompt: JSON
    """A string, or an object whose keys become those of the message."""
    delivery: str
    """`steer`: seen at the next boundary of what runs. `queue`: opens an activity of its own."""
    admitted_seq: int
    """The number of the event that admitted it."""
    promoted_seq: int | None
    """The number of its message, once it is one."""
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to drive a session, until it expires or somebody else has it."""

    session_id: str
    owner: str
    fence: int
    """Rises with each new lease of the session; writes under an older one are refused."""
    expires_at: datetime
    token: str | None = None
    """Tells it from another with its fence and owner: fences begin anew when a session is deleted and created
    again, and come again when the database is set back. `None` is not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Who is busy with a session, and whether anything is still to come."""

    session_id: str
    status: str
    run_id: str | None
    """The running run."""
    pending_inputs: int
    owner: str | None
    """Who drives it now."""
    idle: bool
    """Nobody drives it, no run is under way, and no input waits that anybody would take."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool may return instead of its plain content."""

    content: JSON
    writes: Sequence[Any] = ()
    """Writes to the custom state, committed with the step."""


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What one call of the model came to."""

    message: Message | str | None
    """The assistant's message; tool calls in it mean that the activity goes on."""
    _: KW_ONLY
    writes: Sequence[Any] = ()
    """Writes to the custom state, committed with the step."""
    usage: JSON = None
    output: JSON = None
    error: str | None = None
    """What went wrong: the activity fails, and the next one is begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """What became of a session that a runner drove."""

    kind: str
    """`completed`, `failed`, `interrupted`, `suspended_client_tool`, `suspended_awaiting_children`,
    `suspended_step_partial`, or `idle`: there was nothing to do."""
    run: Run | None = None
    """The last run."""
    output: JSON = None
    error: str | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a request was answered, ready to be sent, or to be kept and sent again."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    replayed: bool = False
    """True when this answer was given before and nothing was done now."""


Messages: TypeAlias = Sequence[Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupSummary:
    """What a clean-up of expired sessions found and did."""

    detected: int = 0
    """Sessions whose `expires_at` is in the past."""
    marked: int = 0
    """Those set to `failed` with the reason `session_expired`; in a dry run, those that would be."""
    already_terminal: int = 0
    """Those that had completed or failed by themselves, or by another clean-up."""
    snapshots_deleted: int = 0
    """Workspace snapshots that were deleted; in a dry run, those that would be."""
    errors: int = 0
    """Sessions that could not be dealt with. They are tried again by the next clean-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DebrisSummary:
    """What crashes left behind, and what was done about it."""

    staged_removed: int = 0
    """Staged changes nobody will promote; in a dry run, those that would be removed."""
    stuck: tuple[str, ...] = ()
    """Sessions with a running run that have not moved for too long."""
    woken: int = 0
    """Stuck sessions that were woken."""
    keys_removed: int = 0
    """Answers kept for idempotency keys whose time is over; in a dry run, those that would be removed."""
    errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Which sessions may be deleted. Every condition must hold."""

    terminal_for: timedelta
    """They have had their status for at least so long."""
    statuses: tuple[str, ...] = PRUNED_STATUSES
    """They have one of these statuses."""
    agent_types: tuple[str, ...] = ()
    """They are of one of these agent types; empty means any."""
    keep_tags: tuple[str, ...] = ()
    """They have none of these tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneSummary:
    """What a retention policy deleted, or in a dry run would delete."""

    sessions: int = 0
    messages: int = 0
    events: int = 0
    estimated_bytes: int | None = None
    """What the rows of these sessions take, by the average size of a row; unknown on SQLite."""
    kept_for_forks: int = 0
    """Sessions the policy would delete, but a branch of them exists."""
    kept_for_children: int = 0
    """Sessions the policy would delete, but a sub-session of them is kept."""
    errors: int = 0
    """Sessions that could not be dealt with. They are tried again the next time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSummary:
    """How many entries of the audit trail were deleted, or in a dry run would be."""

    entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationSummary:
    """What a rotation of encryption keys has sealed anew, or in a dry run would."""

    sessions: int = 0
    """Sessions that were looked at."""
    rows: int = 0
    """Rows that were written again."""
    files: int = 0
    """Archives that were written again."""
    errors: int = 0
    """Sessions and kept answers with content that cannot be read. It is left as it is."""
    last_session_id: str | None = None
    """The session it came to last; `after` goes on behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSummary:
    """What was moved from event logs to a storage, or in a dry run would be."""

    sessions: int = 0
    events: int = 0
    files: int = 0
    stored_bytes: int = 0
    """The size of the compressed files."""
    errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something about a session's rows that should not be."""

    code: str
    """What is wrong; stable across releases."""
    session_id: str | None
    """Where; `None` for the database as a whole."""
    detail: str
    severity: Literal["error", "warning"] = "error"
    """A warning is unusual and allowed."""
    repairable: bool = False
    """Whether it can be put right without guessing."""
    repaired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSummary:
    """What was exported or imported."""

    trees: int = 0
    sessions: int = 0
    records: int = 0
    """Lines, without the header."""
    renewed: int = 0
    """Sessions that were imported under a new id."""
    skipped: int = 0
    """Sessions that were left out, because their tree met an id that exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureSummary:
    """What was removed of a person, or in a dry run would be."""

    sessions: int = 0
    """Sessions with their trees of sub-sessions."""
    messages: int = 0
    events: int = 0
    snapshots_deleted: int = 0
    archives_deleted: int = 0
    """Archive files of event logs."""
    answers_deleted: int = 0
    """Other rows kept for the person, such as answers to repeated requests."""
    forks_left: tuple[str, ...] = ()
    """Branches of the erased sessions that belong to somebody else; they hold copies of messages."""
    errors: int = 0
    """Sessions that could not be removed. Run it again."""


class Unavailable(enum.Enum):
    """The type of `UNAVAILABLE`."""

    UNAVAILABLE = "UNAVAILABLE"

    def __repr__(self) -> str:
        return "UNAVAILABLE"


UNAVAILABLE: Final = Unavailable.UNAVAILABLE
"""What a context source observes when it cannot say at this moment. `None` is a value."""


class ContextSource(Protocol):
    """One thing a model is told before the conversation: instructions, a date, a place.

    Only `observe` looks at the world. The others make texts of the values it returned, JSON documents, and
    make the same text of the same value.
    """

    @property
    def key(self) -> str:
        """The name under which the value is remembered; no two sources of a session share it."""

    def observe(self, session: SessionState, /) -> "JSON | Unavailable":
        """The value as it is now, or `UNAVAILABLE`."""

    def baseline(self, value: JSON, /) -> str:
        """What a model that knows nothing yet is told."""

    def update(self, old: JSON, new: JSON, /) -> str:
        """What a model that knows the old value is told."""

    def removed(self, old: JSON, /) -> str:
        """What a model that knows the old value is told once this source is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEpoch:
    """What a model was told before the conversation, and what it has been told since."""

    baseline: str
    """The exact text, the same on every turn until it is replaced."""
    snapshot: dict[str, JSON]
    """Each source's value as the model knows it, by the source's key."""
    baseline_seq: int
    """The number of the event with which the baseline was rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextOutcome:
    """What a look at the sources came to."""

    kind: str
    """`initialized`, `unchanged`, `updated`, `replaced` or `blocked`."""
    epoch: ContextEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelContext:
    """Exactly what the model sees of a session."""

    baseline: str
    """The epoch's text; empty when there is no epoch."""
    messages: list[dict[str, JSON]]
    estimated_tokens: int = 0
    """By `chars_over_four`."""


def chars_over_four(context: ModelContext) -> int:
    """An estimate of a context's tokens: its characters, divided by four. Roles are not counted."""
    characters = len(context.baseline)
    for message in context.messages:
        for name, value in message.items():
            if name != "role":
                characters += len(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return characters // 4


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When a session's context is too large, and how it is made smaller. Sizes are in tokens."""

    context_window: int | None
    """How much the model takes; without one no compaction is ever due."""
    _: KW_ONLY
    output_tokens: int = 0
    """How much the model may answer."""
    buffer: int = 20_000
    """How much of the window is left free at least."""
    keep_recent: int = 8_000
    """How much of the newest messages is kept as text beside the summary."""
    tool_output_chars: int = 2_000
    """How many characters of a tool's result are kept, for the summary and beside it."""
    summary_tokens: int = 4_096
    """How long the summary may be."""
    auto: bool = True
    """Whether a runner compacts by itself."""
    estimate: Callable[[ModelContext], int] = chars_over_four
    """How many tokens a context has."""

    def __post_init__(self) -> None:
        sizes = ("output_tokens", "buffer", "keep_recent", "tool_output_chars", "summary_tokens")
        checked = {name: getattr(self, name) for name in sizes}
        if self.context_window is not None:
            checked["context_window"] = self.context_window
        for name, size in checked.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                raise InvalidInput(
                    f"{name} of a compaction policy is a number of at least 0, not {size!r:.40}."
                )
        if not callable(self.estimate):
            raise InvalidInput("The estimate of a compaction policy is a function of a context.")

    def due(self, context: ModelContext) -> bool:
        """Whether the context is larger than the window without what is kept free."""
        if not self.context_window:
            return False
        return self.estimate(context) > self.context_window - max(self.output_tokens, self.buffer)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """What a summarizer is given."""

    previous_summary: str | None
    """The summary of what came before these messages. The new one replaces it."""
    messages: list[dict[str, JSON]]
    """Whole messages, oldest first; long results of tools are cut."""
    max_tokens: int
    """How long the summary may be."""


Summarize: TypeAlias = Callable[[SummaryRequest], Any]
"""A function that returns the summary, or something awaitable that does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """A part of a transcript that the model sees as one message."""

    session_id: str
    seq: int
    """The number of the event that recorded it."""
    from_seq: int
    """The number of the first message it replaced that no earlier one had."""
    to_seq: int
    """The number of the last message it replaced."""
    reason: str
    summary: str
    message: dict[str, JSON]
    """What the model sees."""
    message_count: int
    """How many messages it replaced that no earlier one had."""
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionsRevision:
    """A version of what the agents of a type are told."""

    agent_type: str
    number: int
    text: str | None
    """Without one, they were told nothing from then on."""
    created_at: datetime
