"""The spans of time that the page can look at, and its charts over them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models.functions import TruncDay, TruncHour, TruncMinute
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A span that ends now, in steps of a chart."""

    name: str
    label: Any
    per: Any
    """What a bar of a chart stands for."""
    span: timedelta
    step: timedelta
    truncate: Callable[..., Any]
    kept_seconds: int
    """How old its numbers may be."""

    def start(self, now: datetime) -> datetime:
        """Where its first step begins."""
        return self.floor(now) - self.span + self.step

    def floor(self, moment: datetime) -> datetime:
        """Where the step of a moment begins."""
        if self.step >= timedelta(days=1):
            return timezone.localtime(moment).replace(hour=0, minute=0, second=0, microsecond=0)
        utc = moment.astimezone(UTC).replace(second=0, microsecond=0)
        return utc if self.step < timedelta(hours=1) else utc.replace(minute=0)

    def step_of(self, column: str) -> Any:
        """The step of a column, for the database to group by."""
        zone = timezone.get_current_timezone() if self.step >= timedelta(days=1) else UTC
        return self.truncate(column, tzinfo=zone)

    def steps(self, now: datetime) -> list[datetime]:
        """Where each step begins, the oldest first."""
        first, count = self.start(now), round(self.span / self.step)
        return [self.floor(first + self.step * number + self.step / 2) for number in range(count)]

    def series(self, counts: Mapping[datetime, int], now: datetime) -> list[int]:
        """The counts of each step, the oldest first."""
        return [counts.get(step, 0) for step in self.steps(now)]


WINDOWS = {
    window.name: window
    for window in (
        Window(
            name="hour",
            label=_("Last hour"),
            per=_("per minute"),
            span=timedelta(hours=1),
            step=timedelta(minutes=1),
            truncate=TruncMinute,
            kept_seconds=3,
        ),
        Window(
            name="day",
            label=_("Last 24 hours"),
            per=_("per hour"),
            span=timedelta(hours=24),
            step=timedelta(hours=1),
            truncate=TruncHour,
            kept_seconds=4,
        ),
        Window(
            name="fortnight",
            label=_("Last 14 days"),
            per=_("per day"),
            span=timedelta(days=14),
            step=timedelta(days=1),
            truncate=TruncDay,
            kept_seconds=30,
        ),
    )
}

DEFAULT = "day"


def window_of(name: str | None) -> Window:
    """The window of this name, or the usual one."""
    return WINDOWS.get(name or DEFAULT, WINDOWS[DEFAULT])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of a chart, from the bottom of a box that is `HEIGHT` high."""

    x: float
    width: float
    height: float
    value: int
    label: str = ""

    @property
    def y(self) -> float:
        """Where it begins."""
        return HEIGHT - self.height


HEIGHT = 24.0
WIDTH = 120.0


def bars(series: Iterable[int], *, width: float = WIDTH, height: float = HEIGHT, top: int = 0) -> list[Bar]:
    """A series as bars; what is not nothing can be seen."""
    values = list(series)
    highest = max([1, top, *values])
    step = width / max(len(values), 1)
    return [
        Bar(
            x=number * step,
            width=max(step - (1 if step > 3 else 0.3), 0.8),
            height=max(height * value / highest, 1.5),
            value=value,
        )
        for number, value in enumerate(values)
        if value
    ]
