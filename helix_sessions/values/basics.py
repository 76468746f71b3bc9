"""The basic types of all values: JSON, `UNSET`, pages, the statuses and kinds of the contract."""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, get_args

from helix_sessions.values.agents import AgentDefinition as AgentDefinition
from helix_sessions.values.agents import AgentSession as AgentSession
from helix_sessions.values.agents import AgentSessionInfo as AgentSessionInfo
from helix_sessions.values.agents import AgentState as AgentState
from helix_sessions.values.agents import Budget as Budget
from helix_sessions.values.agents import Execution as Execution
from helix_sessions.values.agents import StoredAt as StoredAt

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


SessionStatus: TypeAlias = Literal["active", "completed", "failed", "interrupted", "paused"]
SESSION_STATUSES: Final[tuple[SessionStatus, ...]] = get_args(SessionStatus)

EndStatus: TypeAlias = Literal["completed", "failed"]
TERMINAL_STATUSES: Final[tuple[EndStatus, ...]] = get_args(EndStatus)

TOMBSTONE: Final = "deleted"
"""The status of a session that the `SessionRuntime` deleted. Every other caller treats it as absent."""

PRUNED_STATUSES: Final = (*TERMINAL_STATUSES, TOMBSTONE)
UNFINISHED_STATUSES: Final = ("active", "interrupted", "paused")

RunStatus: TypeAlias = Literal[
    "running",
    "completed",
    "failed",
    "interrupted",
    "suspended_client_tool",
    "suspended_awaiting_children",
    "suspended_step_partial",
]
RUN_STATUSES: Final[tuple[RunStatus, ...]] = get_args(RunStatus)

OutcomeKind: TypeAlias = Literal[
    "completed",
    "failed",
    "interrupted",
    "suspended_client_tool",
    "suspended_awaiting_children",
    "suspended_step_partial",
    "idle",
]
RUN_OUTCOMES: Final[tuple[OutcomeKind, ...]] = get_args(OutcomeKind)

RunEnding: TypeAlias = Literal["completed", "failed", "interrupted"]
ENDINGS: Final[tuple[RunEnding, ...]] = get_args(RunEnding)

SessionMode: TypeAlias = Literal["standard", "persistent"]
MODES: Final[tuple[SessionMode, ...]] = get_args(SessionMode)

ROLES: Final = ("user", "assistant", "tool", "system")

CheckpointSource: TypeAlias = Literal["save", "staging"]
CHECKPOINT_SOURCES: Final[tuple[CheckpointSource, ...]] = get_args(CheckpointSource)

RefMode: TypeAlias = Literal["ephemeral", "persistent"]
REF_MODES: Final[tuple[RefMode, ...]] = get_args(RefMode)

RefLocation: TypeAlias = Literal["local", "remote"]
REF_LOCATIONS: Final[tuple[RefLocation, ...]] = get_args(RefLocation)

Suspension: TypeAlias = Literal["client_tool", "awaiting_children", "step_partial"]
SUSPENSIONS: Final[tuple[Suspension, ...]] = get_args(Suspension)

CallKind: TypeAlias = Literal["client_tool", "approval"]
CALL_KINDS: Final[tuple[CallKind, ...]] = get_args(CallKind)

ToolDecision: TypeAlias = Literal["allow", "ask", "deny"]
TOOL_DECISIONS: Final[tuple[ToolDecision, ...]] = get_args(ToolDecision)

Delivery: TypeAlias = Literal["steer", "queue"]
DELIVERIES: Final[tuple[Delivery, ...]] = get_args(Delivery)

RecoveryPolicy: TypeAlias = Literal["wake", "fail"]
RECOVERIES: Final[tuple[RecoveryPolicy, ...]] = get_args(RecoveryPolicy)
RECOVERY_POLICIES: Final = (*RECOVERIES, "leave")

Collision: TypeAlias = Literal["fail", "renew", "skip"]
COLLISIONS: Final[tuple[Collision, ...]] = get_args(Collision)

Approver: TypeAlias = Literal["driver", "participant"]
APPROVERS: Final[tuple[Approver, ...]] = get_args(Approver)

Remembered: TypeAlias = Literal["session", "owner"]
"""For which calls of a tool an approval is remembered."""
REMEMBERED: Final[tuple[Remembered, ...]] = get_args(Remembered)

SubmissionOutcome: TypeAlias = Literal["accepted", "already_completed", "late"]
SUBMISSION_OUTCOMES: Final[tuple[SubmissionOutcome, ...]] = get_args(SubmissionOutcome)

OwnerKey: TypeAlias = Annotated[Any, int | str | None]
"""The primary key of a user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A piece of a listing."""

    items: list[T]
    """The rows, in the listing's order."""
    next_cursor: str | None
    """What to pass as `cursor` for the rows after these; `None` on the last page."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


Messages: TypeAlias = Sequence[Message]
