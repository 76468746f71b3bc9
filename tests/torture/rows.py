"""A session as the sequential model sees it."""

from dataclasses import dataclass, replace
from typing import Any

IMPOSSIBLE = object()
"""The answer to a call that cannot have been made at this moment; equal to no other."""


@dataclass(frozen=True)
class Input:
    """A prompt of the inbox."""

    input_id: str
    prompt: str
    delivery: str
    admitted_as: str
    admitted_seq: int
    promoted_seq: int | None = None
    cancelled: bool = False

    @property
    def pending(self) -> bool:
        return self.promoted_seq is None and not self.cancelled

    @property
    def receipt(self) -> tuple[Any, ...]:
        return self.input_id, self.delivery, self.admitted_seq, self.promoted_seq


@dataclass(frozen=True)
class Promotion:
    """A promotion under way: the call, what it will say, and the inputs it has still to look at."""

    call: Any
    promotes: tuple[str, ...]
    fenced: bool
    lease: tuple[str, int] | None
    plan: tuple[tuple[str, str], ...]
    """Ids, and the delivery each had when the call began."""


@dataclass(frozen=True)
class Row:
    """As much of a session as the calls of a history read and write."""

    version: int
    seq: int = 0
    """The number of the last event."""
    status: str = "active"
    messages: int = 0
    done: tuple[int, ...] = ()
    flag: str | None = None
    run: str | None = None
    turns: int = 0
    resumes: int = 0
    answered: frozenset[str] = frozenset()
    suspended: bool = False
    commits: tuple[tuple[str, int, int], ...] = ()
    fence: int = 0
    owner: str | None = None
    """Who has the newest lease, unless it was given back."""
    expires_at: Any = None
    inputs: tuple[Input, ...] = ()
    promotions: frozenset[Promotion] = frozenset()

    def written(self, events: int, **changes: Any) -> "Row":
        """After a write that logs so many events."""
        return replace(self, version=self.version + 1, seq=self.seq + events, **changes)

    def fences(self, lease: tuple[str, int] | None) -> bool:
        """Whether a write under this lease is refused."""
        return lease is not None and lease != (self.owner, self.fence)

    @property
    def pending(self) -> tuple[Input, ...]:
        return tuple(it for it in self.inputs if it.pending)


Given = dict[str, Any]
Answer = tuple[Row, Any]
"""The row after a call, and what the caller is told."""
