"""Runs, leases, interrupts."""

from dataclasses import dataclass
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
    error: str | None
    usage: JSON
    metadata: dict[str, JSON]
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """What a recovery left behind."""

    prior_head: int
    """The number of the last event before it."""
    head_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What became of a run that its owner left running."""

    ended: Run
    """The run, closed."""
    run: Run | None
    """The run that goes on with it, if a model still owes an answer."""
    status: str
    """The session's status afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptRequest:
    """Somebody asked the session to stop."""

    reason: str | None
    requested_at: datetime


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
    status: SessionStatus
    run_id: str | None
    """The running run."""
    pending_inputs: int
    owner: str | None
    """Who drives it now."""
    idle: bool
    """Nobody drives it, no run is under way, and no input waits that anybody would take."""
