"""How many sessions each choice of a filter has, in one statement.

Without other filters these are counts of the whole table, each by its index, kept for a few seconds. Within
other filters they are of the newest sessions that match, because no index has every combination.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.core.cache import cache
from django.db.models import Count, Q
from django.utils import timezone

from helix_sessions.admin.base import stored
from helix_sessions.admin.filters import CONDITIONS, stuck_since
from helix_sessions.admin.humanize import STATUS_LABELS
from helix_sessions.admin.now.windows import WINDOWS
from helix_sessions.admin.paginator import COUNTED, bounded_count
from helix_sessions.models import Session
from helix_sessions.models import session_querysets as are
from helix_sessions.models.sql import bounded_counts

KEPT_SECONDS = 15
CACHE_KEY = "helix_sessions.admin.facets"

_CONDITIONS: dict[str, Callable[[], Q]] = {
    "stuck": lambda: are.is_stuck(stuck_since()),
    "waiting": lambda: are.AWAITING_CLIENT,
    "running": lambda: are.RUNNING,
    "stopping": lambda: are.INTERRUPTED_BY_REQUEST,
    "expired": lambda: are.is_expired(timezone.now()),
}


@dataclass(frozen=True, slots=True)
class Counted:
    """How many; with `more`, at least so many."""

    value: int
    more: bool = False

    def __str__(self) -> str:
        return f"{self.value:,}+" if self.more else f"{self.value:,}"


Counts = dict[str, dict[str, Counted]]
"""By the parameter of a filter and its value."""


def whole() -> Counts:
    """Of all sessions, a few seconds old."""
    found: Counts | None = cache.get(CACHE_KEY)
    if found is None:
        rows = stored(Session).all()
        choices = [("status", name, rows.filter(status=name)) for name in STATUS_LABELS]
        choices += [("is", name, find(rows)) for name, (_label, find) in CONDITIONS.items()]
        counts = bounded_counts([each for _, _, each in choices], COUNTED)
        found = {"status": {}, "is": {}}
        for (parameter, name, _), count in zip(choices, counts, strict=True):
            found[parameter][name] = Counted(min(count, COUNTED), count > COUNTED)
        cache.set(CACHE_KEY, found, KEPT_SECONDS)
    return found


def failed_in_a_day() -> Counted:
    """Sessions that failed in the last 24 hours, a few seconds old."""
    found: Counted | None = cache.get(f"{CACHE_KEY}.failed")
    if found is None:
        day = WINDOWS["day"].start(timezone.now())
        count = bounded_count(stored(Session).filter(status="failed", status_since__gte=day))
        found = Counted(min(count, COUNTED), count > COUNTED)
        cache.set(f"{CACHE_KEY}.failed", found, KEPT_SECONDS)
    return found


def within(rows: Any, status: str | None, condition: str | None) -> Counts:
    """Of the newest of `rows`, which have every filter but these two. Each has the other one applied."""
    of_status = Q(status=status) if status in STATUS_LABELS else Q()
    of_condition = _CONDITIONS[condition]() if condition in _CONDITIONS else Q()
    counts: dict[str, Any] = {"every": Count("pk")}
    for name in STATUS_LABELS:
        counts[f"status_{name}"] = Count("pk", filter=Q(status=name) & of_condition)
    for name, having in _CONDITIONS.items():
        counts[f"is_{name}"] = Count("pk", filter=having() & of_status)
    found = rows.order_by("-created_at", "-session_id")[:COUNTED].aggregate(**counts)
    more = found["every"] >= COUNTED

    def part(parameter: str, names: Any) -> dict[str, Counted]:
        return {name: Counted(found[f"{parameter}_{name}"], more) for name in names}

    return {"status": part("status", STATUS_LABELS), "is": part("is", _CONDITIONS)}
