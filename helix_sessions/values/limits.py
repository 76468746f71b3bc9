"""Limits across sessions."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

SpendScope = Literal["owner", "agent_type", "all"]
SPEND_SCOPES: tuple[SpendScope, ...] = get_args(SpendScope)

SpendWindow = Literal["day", "month", "total"]
SPEND_WINDOWS: tuple[SpendWindow, ...] = get_args(SpendWindow)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendLimit:
    """What an owner, an agent type or all together may spend in a window."""

    limit_id: str
    scope: SpendScope
    key: str | None
    """The owner's primary key as text, or the agent type; `None` for `all`."""
    window: SpendWindow
    usd: float | None
    """US dollars; `None`: no limit in dollars."""
    tokens: int | None
    """Input and output tokens; `None`: no limit in tokens."""
    warn_at: float | None
    """The share of the limit at which one warning is sent in each window."""
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendStatus:
    """A limit, and what was used of it in the current window."""

    scope: SpendScope
    key: str | None
    window: SpendWindow
    used_usd: float
    used_tokens: int
    limit_usd: float | None
    limit_tokens: int | None
    resets_at: datetime | None
    """When the next window begins; `None` for `total`."""
