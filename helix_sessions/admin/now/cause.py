"""One trouble on the page: what it is, how many sessions have it, and what helps."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from django.utils.translation import gettext as _

from helix_sessions.admin import presentation
from helix_sessions.admin.now.windows import Bar, Window, bars

MOST_AGENTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One trouble, with all sessions that have it."""

    key: str
    kind: str
    title: str
    count: int
    since: datetime | None
    last: datetime | None = None
    detail: str = ""
    is_bounded: bool = False
    agents: list[tuple[str, int]] = field(default_factory=list)
    series: list[int] = field(default_factory=list)
    example: str = ""
    query: str = ""
    """The list of these sessions."""
    place: str = ""
    """The page of these sessions, if it is not the list."""
    remedies: tuple[str, ...] = ()
    """The names of the actions that help."""
    call: str = ""
    """The tool whose calls wait."""

    @property
    def chip(self) -> presentation.Chip:
        """Its kind, as icon and colour."""
        return presentation.Chip(kind=self.kind, label=_KINDS[self.kind]())

    @property
    def bars(self) -> list[Bar]:
        """When it happened."""
        return bars(self.series)

    @property
    def agents_shown(self) -> list[tuple[str, int]]:
        """Those with most of it."""
        return self.agents[:MOST_AGENTS]

    @property
    def agents_unshown(self) -> int:
        """How many more there are."""
        return max(len(self.agents) - MOST_AGENTS, 0)


_KINDS = {
    "failed": lambda: _("Failed"),
    "stuck": lambda: _("Silent"),
    "queued": lambda: _("No worker"),
    "busy": lambda: _("Queued"),
    "waiting": lambda: _("Waiting"),
    "inbox": lambda: _("Inbox full"),
    "stopping": lambda: _("Asked to stop"),
    "expired": lambda: _("Expired"),
}


def series_of(window: Window, moments: Iterable[datetime], now: datetime) -> list[int]:
    """How many moments are in each step; those before the window are in its first one."""
    start = window.start(now)
    return window.series(Counter(window.floor(max(moment, start)) for moment in moments), now)


def most_of(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """The sums by name, the largest first."""
    total: Counter[str] = Counter()
    for name, count in counts:
        total[name] += count
    return total.most_common()
