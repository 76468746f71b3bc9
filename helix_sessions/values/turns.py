"""What an agent and its runner hand each other."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any

from helix_sessions.values.agents import AgentDefinition as AgentDefinition
from helix_sessions.values.agents import AgentSession as AgentSession
from helix_sessions.values.agents import AgentSessionInfo as AgentSessionInfo
from helix_sessions.values.agents import AgentState as AgentState
from helix_sessions.values.agents import Budget as Budget
from helix_sessions.values.agents import Execution as Execution
from helix_sessions.values.agents import StoredAt as StoredAt
from helix_sessions.values.basics import JSON, Delivery, Message, OutcomeKind
from helix_sessions.values.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReceipt:
    """A prompt that was admitted to a session's inbox."""

    input_id: str
    session_id: str
    prompt: JSON
    """A string, or an object whose keys become those of the message."""
    delivery: Delivery
    """`steer`: seen at the next boundary of what runs. `queue`: opens an activity of its own."""
    admitted_seq: int
    """The number of the event that admitted it."""
    promoted_seq: int | None
    """The number of its message, once it is one."""
    created_at: datetime


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

    kind: OutcomeKind
    """`completed`, `failed`, `interrupted`, `suspended_client_tool`, `suspended_awaiting_children`,
    `suspended_step_partial`, or `idle`: there was nothing to do."""
    run: Run | None = None
    """The last run."""
    output: JSON = None
    error: str | None = None
