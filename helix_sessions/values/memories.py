"""What agents remember across sessions."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A document under a key of a namespace, which outlives every session."""

    namespace: tuple[str, ...]
    """Where it is, such as `("owner", "42", "preferences")`."""
    key: str
    value: dict[str, Any]
    created_at: datetime
    """The time of the first put of this key."""
    updated_at: datetime
    """The time of the last put."""
    expires_at: datetime | None = None
    """The time from which on it is gone; `None` if it stays."""
    score: float | None = None
    """How well it fits the query of a search, higher is better; `None` without a query."""
