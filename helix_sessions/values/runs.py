"""Runs, leases, interrupts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime

from helix_sessions.values.agents import AgentDefinition as AgentDefinition
from helix_sessions.values.agents import AgentSession as AgentSession
from helix_sessions.values.agents import AgentSessionInfo as AgentSessionInfo
from helix_sessions.values.agents import AgentState as AgentState
from helix_sessions.values.agents import Budget as Budget
from helix_sessions.values.agents import Execution as Execution
from helix_sessions.values.agents import StoredAt as StoredAt
from helix_sessions.values.basics import JSON, RunStatus, SessionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution inside a session."""

    run_id: str
    session_id: str
    turn: int
    status: RunStatus
    step_count: int
    start_sequence: int
    """The session's `head_seq` just before the run."""
    end_sequence: int | None
    """The number of the event that ended it."""
    output: JSON
    error: JSON
    """As it was given; a runner writes `{code, message, type, attempt, fingerprint}`."""
    usage: JSON
    metadata: dict[str, JSON]
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """The outcome of a recovery by `wake`."""

    prior_head: int
    """The number of the last event before it."""
    head_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The outcome of recovering a run that its owner left running."""

    ended: Run
    """The run, closed."""
    run: Run | None
    """The run that continues it, if the model has not answered yet."""
    status: str
    """The session's status afterwards."""
    tries: dict[str, int] = field(default_factory=dict)
    """Calls that were left open to be repeated, each with how often it was made before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptRequest:
    """A request to stop the session."""

    reason: str | None
    requested_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to drive a session, until it expires or another owner takes it."""

    session_id: str
    owner: str
    fence: int
    """Rises with each new lease of the session; writes under an older one are refused."""
    expires_at: datetime
    token: str | None = None
    """Tells it from another lease with the same fence and owner: fences start again when a session is deleted
    and created again, and repeat when the database is restored. `None` is not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Who drives a session, and whether work is left."""

    session_id: str
    status: SessionStatus
    run_id: str | None
    """The running run."""
    pending_inputs: int
    owner: str | None
    """Who drives it now."""
    idle: bool
    """It has no driver, no run is under way, and no input waits that a driver would take."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UsageTotals(Mapping[str, float]):
    """What a session, or its tree, has used. It is a mapping of its fields, too."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    """Of the input: read from the provider's cache."""
    cache_write_tokens: int = 0
    """Of the input: written to it."""
    reasoning_tokens: int = 0
    """Of the output: not shown."""
    cost: float = 0

    def __getitem__(self, name: str) -> float:
        if name not in _USAGE:
            raise KeyError(name)
        value: float = getattr(self, name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(_USAGE)

    def __len__(self) -> int:
        return len(_USAGE)

    def __bool__(self) -> bool:
        return any(self.values())

    def __hash__(self) -> int:
        return hash(tuple(self.values()))

    def __add__(self, other: Mapping[str, float]) -> "UsageTotals":
        return UsageTotals(**{name: self[name] + other[name] for name in _USAGE})  # type: ignore[arg-type]

    def __sub__(self, other: Mapping[str, float]) -> "UsageTotals":
        return UsageTotals(**{name: self[name] - other[name] for name in _USAGE})  # type: ignore[arg-type]


_USAGE = tuple(field.name for field in fields(UsageTotals))
