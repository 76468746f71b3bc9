"""What the model sees: sources, epochs, compaction."""

import enum
import json
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
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
"""What a context source returns when its value is unavailable at this moment. `None` is a value."""


class ContextSource(Protocol):
    """One part of a model's context: instructions, a date, a place.

    Only `observe` has side effects. The others render the values it returned, which are JSON documents, and
    always render the same text for the same value.
    """

    @property
    def key(self) -> str:
        """The name under which the value is stored, unique among the sources of a session."""

    def observe(self, session: SessionState, /) -> "JSON | Unavailable":
        """The value as it is now, or `UNAVAILABLE`."""

    def baseline(self, value: JSON, /) -> str:
        """The text for a model without an earlier value."""

    def update(self, old: JSON, new: JSON, /) -> str:
        """The text for a model that has the old value."""

    def removed(self, old: JSON, /) -> str:
        """The text for a model that has the old value, once this source is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEpoch:
    """The baseline of a model's context, and the values it has now."""

    baseline: str
    """The exact text, the same on every turn until it is replaced."""
    snapshot: dict[str, JSON]
    """The value of each source that the model has, by the source's key."""
    baseline_seq: int
    """The number of the event with which the baseline was rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextOutcome:
    """The outcome of observing the sources."""

    kind: str
    """`initialized`, `unchanged`, `updated`, `replaced` or `blocked`."""
    epoch: ContextEpoch
    observed: dict[str, float] = field(default_factory=dict, compare=False)
    """How many seconds each source took, by its key."""
    unavailable: list[str] = field(default_factory=list, compare=False)
    """The keys of the sources that were not available."""
    update_characters: int = field(default=0, compare=False)
    """How much the updates since the baseline take in the context, in characters as they are stored."""


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
    return (len(context.baseline) + context_characters(context.messages)) // 4


def context_characters(messages: Iterable[dict[str, JSON]]) -> int:
    """How many characters these messages have. Roles are not counted."""
    return sum(
        len(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for message in messages
        for name, value in message.items()
        if name != "role"
    )


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When a session's context is too large, and how it is made smaller. Sizes are in tokens."""

    context_window: int | None
    """The context window of the model; without one no compaction is ever due."""
    _: KW_ONLY
    output_tokens: int = 0
    """The longest answer of the model."""
    buffer: int = 20_000
    """How much of the window stays free at least."""
    keep_recent: int = 8_000
    """How much of the newest messages is kept as text beside the summary."""
    tool_output_chars: int = 2_000
    """How many characters of a tool's result are kept, for the summary and beside it."""
    keep_results: int = 16_000
    """How much of the newest results of tools a compaction reads; of older ones a line says that they were
    there."""
    summary_tokens: int = 4_096
    """How long the summary may be."""
    auto: bool = True
    """Whether a runner compacts automatically."""
    estimate: Callable[[ModelContext], int] = chars_over_four
    """How many tokens a context has."""

    def __post_init__(self) -> None:
        sizes = ("output_tokens", "buffer", "keep_recent", "tool_output_chars", "keep_results")
        checked = {name: getattr(self, name) for name in (*sizes, "summary_tokens")}
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
    """The input of a summarizer."""

    previous_summary: str | None
    """The summary of what came before these messages. The new one replaces it."""
    messages: list[dict[str, JSON]]
    """Whole messages, oldest first, without native reasoning; long results of tools are cut, old ones left
    out."""
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
    """A version of the instructions of an agent type."""

    agent_type: str
    number: int
    text: str | None
    """`None`: the instructions were withdrawn."""
    created_at: datetime
