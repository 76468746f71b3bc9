"""What the model sees: sources, epochs, compaction."""

import enum
import json
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

from helix_sessions.exceptions import InvalidInput
from helix_sessions.values.agents import AgentDefinition as AgentDefinition
from helix_sessions.values.agents import AgentSession as AgentSession
from helix_sessions.values.agents import AgentSessionInfo as AgentSessionInfo
from helix_sessions.values.agents import AgentState as AgentState
from helix_sessions.values.agents import Budget as Budget
from helix_sessions.values.agents import Execution as Execution
from helix_sessions.values.agents import StoredAt as StoredAt
from helix_sessions.values.basics import JSON
from helix_sessions.values.sessions import SessionState


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
    """By `chars_over_four`: the characters, divided by four."""


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
