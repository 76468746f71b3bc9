"""What all values are made of: JSON, absence, pages, the words of the contract."""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

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


RECOVERIES: Final = ("wake", "fail")


ENDINGS: Final = ("completed", "failed", "interrupted")


SUBMISSION_OUTCOMES: Final = ("accepted", "already_completed", "late")


RUN_OUTCOMES: Final = (*(status for status in RUN_STATUSES if status != "running"), "idle")


# Python code takes them for a `str`. The second argument is what the API sends.
SessionStatus: TypeAlias = Annotated[str, Literal[SESSION_STATUSES]]


RunStatus: TypeAlias = Annotated[str, Literal[RUN_STATUSES]]


SessionMode: TypeAlias = Annotated[str, Literal[MODES]]


CheckpointSource: TypeAlias = Annotated[str, Literal[CHECKPOINT_SOURCES]]


RefMode: TypeAlias = Annotated[str, Literal[REF_MODES]]


RefLocation: TypeAlias = Annotated[str, Literal[REF_LOCATIONS]]


CallKind: TypeAlias = Annotated[str, Literal[CALL_KINDS]]


Delivery: TypeAlias = Annotated[str, Literal[DELIVERIES]]


SubmissionOutcome: TypeAlias = Annotated[str, Literal[SUBMISSION_OUTCOMES]]


OutcomeKind: TypeAlias = Annotated[str, Literal[RUN_OUTCOMES]]


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
