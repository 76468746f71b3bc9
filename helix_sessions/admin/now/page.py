"""The page: its panels, each kept for a few seconds, so that many operators cost as much as one."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.core.cache import cache
from django.utils import timezone, translation

from helix_sessions.admin.now import causes, flow
from helix_sessions.admin.now.cause import Cause
from helix_sessions.admin.now.windows import WINDOWS, Window
from helix_sessions.admin.workers import Workers, workers

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """Everything the page shows."""

    as_of: datetime
    window: Window
    windows: list[Window]
    causes: list[Cause]
    throughput: flow.Throughput
    speeds: list[flow.Speed]
    money: flow.Money
    workers: Workers

    @property
    def in_trouble(self) -> int:
        """How many sessions have one of the troubles."""
        return sum(cause.count for cause in self.causes)


def now_page(window: Window) -> Now:
    """The page of a window."""
    now = timezone.now()
    speeds, money = _kept(f"runs-{window.name}", window, lambda: _of_runs(window, now))
    return Now(
        as_of=now,
        window=window,
        windows=list(WINDOWS.values()),
        causes=_kept(f"causes-{window.name}", window, lambda: causes.causes(window, now)),
        throughput=_kept(f"throughput-{window.name}", window, lambda: flow.throughput(window, now)),
        speeds=speeds,
        money=money,
        workers=_kept("workers", window, lambda: workers(now)),
    )


def _of_runs(window: Window, now: datetime) -> tuple[list[flow.Speed], flow.Money]:
    runs = flow.sampled_runs(window, now)
    return flow.speeds(runs), flow.money(window, now, runs)


def _kept(name: str, window: Window, read: Callable[[], T]) -> T:
    key = f"helix_sessions.admin.now.{name}.{translation.get_language()}"
    found: Any = cache.get(key)
    if found is None:
        found = read()
        cache.set(key, found, window.kept_seconds)
    return found  # type: ignore[no-any-return]
