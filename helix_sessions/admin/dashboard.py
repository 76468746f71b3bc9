"""The dashboard. Every query is bounded, and cached for a minute."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.core.cache import cache
from django.db import connections
from django.urls import reverse
from django.utils import timezone

from helix_sessions.admin import humanize, presentation
from helix_sessions.admin.base import store, stored
from helix_sessions.admin.filters import CONDITIONS, day_begins
from helix_sessions.admin.paginator import COUNTED, bounded_count, estimated_rows
from helix_sessions.messages.usage import Usage
from helix_sessions.models import Run, Session
from helix_sessions.models.sql import bounded_counts
from helix_sessions.store.engine.dialect import dialect_of

DAYS = 14
PER_DAY = 20_000
"""A day with more than this is shown as "more than"."""
RECENT = 5_000
"""Agents are compared on so many of the newest sessions."""
REPORTS = 2_000
"""Usage is summed over so many runs of the newest sessions."""
AGENTS_SHOWN = 8
OLDEST_SHOWN = 5
KEPT_SECONDS = 60
CACHE_KEY = "helix_sessions.admin.dashboard"
ESTIMATED_ABOVE = 10 * COUNTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A count and the list it leads to."""

    kind: str
    label: Any
    value: int
    query: str
    is_estimate: bool = False
    is_bounded: bool = False
    """More than `value`."""
    share: float = 0.0
    offset: float = 0.0
    """Where its part of a bar of 100 begins."""

    @property
    def chip(self) -> presentation.Chip:
        """Its icon and colour."""
        return presentation.Chip(kind=self.kind, label=self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """The sessions created and ended on a day; heights are of a chart 100 high."""

    day: date
    created: int
    ended: int
    created_height: float
    ended_height: float
    x: int
    is_bounded: bool

    @property
    def created_y(self) -> float:
        """Where its bar begins."""
        return 108 - self.created_height

    @property
    def ended_y(self) -> float:
        """Where its bar begins."""
        return 108 - self.ended_height


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The load of one agent type; widths are of a bar 100 wide."""

    name: str
    sessions: int
    width: float
    usage: Usage
    usage_width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """Everything the page shows."""

    as_of: datetime
    total: int
    is_estimate: bool
    is_bounded: bool
    """There are more than `total`, because one of its parts is more than what is counted."""
    statuses: list[Number]
    conditions: list[Number]
    days: list[Day]
    agents: list[Agent]
    has_cost: bool
    recent: int
    waiting: list[dict[str, Any]]


def dashboard() -> Dashboard:
    """The dashboard, at most a minute old."""
    found: Dashboard | None = cache.get(CACHE_KEY)
    if found is None:
        found = _read()
        cache.set(CACHE_KEY, found, KEPT_SECONDS)
    return found


def dashboard_context() -> dict[str, Any]:
    """What its template needs."""
    return {
        "dashboard": dashboard(),
        "list_url": reverse("admin:helix_sessions_session_changelist"),
        "every": 1000 * KEPT_SECONDS,
    }


def _read() -> Dashboard:
    statuses, is_estimate = _statuses()
    agents, recent = _agents()
    return Dashboard(
        as_of=timezone.now(),
        total=sum(number.value for number in statuses),
        is_estimate=is_estimate,
        is_bounded=any(number.is_bounded for number in statuses),
        statuses=statuses,
        conditions=_conditions(),
        days=_days(),
        agents=agents,
        has_cost=any(agent.usage.cost for agent in agents),
        recent=recent,
        waiting=_waiting(),
    )


def _statuses() -> tuple[list[Number], bool]:
    counts = _estimated_statuses()
    is_estimate = counts is not None
    if counts is None:
        counts = {
            status: bounded_count(stored(Session).filter(status=status)) for status in humanize.STATUS_LABELS
        }
    total = sum(counts.get(status, 0) for status in humanize.STATUS_LABELS) or 1
    numbers, offset = [], 0.0
    for status, label in humanize.STATUS_LABELS.items():
        value = counts.get(status, 0)
        share = 100 * value / total
        numbers.append(
            Number(
                kind=status,
                label=str(label),
                value=min(value, COUNTED) if not is_estimate else value,
                query=f"status={status}",
                is_estimate=is_estimate,
                is_bounded=not is_estimate and value > COUNTED,
                share=share,
                offset=offset,
            )
        )
        offset += share
    return numbers, is_estimate


def _estimated_statuses() -> dict[str, int] | None:
    """The planner's estimate, for tables too large to count; `None` for others."""
    rows = estimated_rows(stored(Session))
    if rows is None or rows <= ESTIMATED_ABOVE:
        return None
    connection = connections[store().using]
    shares = dialect_of(connection).estimated_shares(connection, Session._meta.db_table, "status")
    return {status: round(rows * share) for status, share in shares.items()} or None


def _conditions() -> list[Number]:
    numbers = []
    for name, (label, find) in CONDITIONS.items():
        value = bounded_count(find(stored(Session)))
        numbers.append(
            Number(
                kind=name,
                label=str(label),
                value=min(value, COUNTED),
                query=f"is={name}",
                is_bounded=value > COUNTED,
            )
        )
    return numbers


def _days() -> list[Day]:
    today = timezone.localdate()
    days = [today - timedelta(days=back) for back in reversed(range(DAYS))]
    both = [rows for day in days for rows in _of_day(day)]
    found = bounded_counts(both, PER_DAY)
    counts = list(zip(found[::2], found[1::2], strict=True))
    highest = max([1, *(max(pair) for pair in counts)])
    return [
        Day(
            day=day,
            created=min(created, PER_DAY),
            ended=min(ended, PER_DAY),
            created_height=100 * created / highest,
            ended_height=100 * ended / highest,
            x=index * 40,
            is_bounded=max(created, ended) > PER_DAY,
        )
        for index, (day, (created, ended)) in enumerate(zip(days, counts, strict=True))
    ]


def _of_day(day: date) -> tuple[Any, Any]:
    """The sessions created on a day, those deleted since included, and those that ended on it."""
    start, end = day_begins(day), day_begins(day + timedelta(days=1))
    every = Session.with_tombstones.using(store().using)
    return every.filter(created_at__gte=start, created_at__lt=end), stored(Session).ended_between(start, end)


def _agents() -> tuple[list[Agent], int]:
    newest = list(stored(Session).newest_first().values_list("session_id", "agent_type")[:RECENT])
    sessions = Counter(agent for _, agent in newest)
    agent_of = dict(newest[:REPORTS])
    usages: defaultdict[str, Usage] = defaultdict(Usage)
    reports = stored(Run).filter(session_id__in=list(agent_of)).exclude(usage=None)
    for session_id, report in reports.values_list("session_id", "usage")[:REPORTS]:
        usages[agent_of[session_id]].add(report)
    top = sessions.most_common(AGENTS_SHOWN)
    most = top[0][1] if top else 1
    most_tokens = max([1, *(usages[name].tokens for name, _ in top)])
    agents = [
        Agent(
            name=name,
            sessions=count,
            width=100 * count / most,
            usage=usages[name],
            usage_width=100 * usages[name].tokens / most_tokens,
        )
        for name, count in top
    ]
    return agents, len(newest)


def _waiting() -> list[dict[str, Any]]:
    rows = stored(Session).waiting().values("session_id", "agent_type", "waiting_since")
    found: Iterable[Any] = rows[:OLDEST_SHOWN]
    return list(found)
