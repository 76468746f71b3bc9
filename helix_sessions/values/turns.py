"""Values between an agent and its runner."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any

from helix_sessions.exceptions import InvalidInput
from helix_sessions.values.agents import AgentDefinition as AgentDefinition
from helix_sessions.values.agents import AgentSession as AgentSession
from helix_sessions.values.agents import AgentSessionInfo as AgentSessionInfo
from helix_sessions.values.agents import AgentState as AgentState
from helix_sessions.values.agents import Budget as Budget
from helix_sessions.values.agents import Execution as Execution
from helix_sessions.values.agents import StoredAt as StoredAt
from helix_sessions.values.agents import optional
from helix_sessions.values.basics import JSON, REF_MODES, Delivery, Message, OutcomeKind, RefMode
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
    """The outcome of one model call."""

    message: Message | str | None
    """The assistant's message; with tool calls in it the activity continues."""
    _: KW_ONLY
    writes: Sequence[Any] = ()
    """Writes to the custom state, committed with the step."""
    usage: JSON = None
    output: JSON = None
    error: str | None = None
    """The error: the activity fails, and the next one begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The outcome of driving a session."""

    kind: OutcomeKind
    """`completed`, `failed`, `interrupted`, `suspended_client_tool`, `suspended_awaiting_children`,
    `suspended_step_partial`, or `idle`: there was nothing to do."""
    run: Run | None = None
    """The last run."""
    output: JSON = None
    error: JSON = None
    """What went wrong: `{code, message, type, attempt, fingerprint}`, or as a caller gave it."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and after how long a call that failed for a time is made again."""

    max_attempts: int = 4
    """The first attempt counts."""
    initial: float = 1.0
    """Seconds before the second attempt."""
    factor: float = 2.0
    """By how much each wait is longer than the one before."""
    maximum: float = 60.0
    """The longest wait, unless the other side says `Retry-After`."""
    jitter: float = 0.2
    """The share of a wait that chance takes away or adds, so that workers do not retry all at once."""
    retry_on: tuple[type[BaseException], ...] = (ConnectionError,)
    """Errors to retry besides `TransientError` and timeouts."""

    def __post_init__(self) -> None:
        attempts = self.max_attempts
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise InvalidInput("max_attempts of a retry policy must be a whole number above zero.")
        for name, least in (("initial", 0), ("factor", 1), ("maximum", 0), ("jitter", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 2**31:
                raise InvalidInput(f"{name} of a retry policy must be a number of at least {least}.")
        if self.jitter > 1:
            raise InvalidInput("jitter of a retry policy is a share, at most 1.")
        object.__setattr__(self, "retry_on", tuple(self.retry_on))
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in self.retry_on):
            raise InvalidInput("retry_on of a retry policy must be a tuple of exception classes.")


@dataclass(frozen=True, slots=True)
class Spawn:
    """What a tool returns to have a sub-agent answer its call."""

    agent_type: str
    prompt: JSON
    """A string, or an object whose keys become those of the message."""
    _: KW_ONLY
    mode: RefMode = "ephemeral"
    """`ephemeral`: a new session for this call. `persistent`: a companion, continued under its `name`."""
    name: str | None = None
    custom_state: Mapping[str, JSON] | None = None
    """The state of a session that is created for it."""
    budget: Budget | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.agent_type, str) or not self.agent_type:
            raise InvalidInput("agent_type of a spawn must be a text that is not empty.")
        if not isinstance(self.prompt, str | Mapping):
            raise InvalidInput("prompt of a spawn must be a string or an object.")
        if self.mode not in REF_MODES:
            raise InvalidInput(f"mode of a spawn must be one of {', '.join(REF_MODES)}.")
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise InvalidInput("name of a spawn must be a text that is not empty.")
        if self.custom_state is not None and not isinstance(self.custom_state, Mapping):
            raise InvalidInput("custom_state of a spawn must be an object.")
        object.__setattr__(self, "budget", optional(Budget, self.budget))
