"""Workers: what is alive, what it drives, and since when. Now and the page of workers both read it here.

Two facts say it: the row that `run_sessions` renews every few seconds, and the leases on sessions. An owner
of leases without a row is a driver of its own, and alive as long as one of its leases is.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import ExpressionWrapper, Q
from django.db.models.fields import BooleanField

from helix_sessions.admin.base import stored
from helix_sessions.conf import conf
from helix_sessions.models import Run, Session, Worker
from helix_sessions.models.clocks import LeaseClock
from helix_sessions.models.session_querysets import RUNNING
from helix_sessions.store.driving.workers import ALIVE, FORGOTTEN

MOST_DRIVEN = 1_000
"""So many leases are looked at."""
NAMED = 10
"""So many sessions of a worker are named; the rest are counted."""

_HELD = Q(lease_expires_at__gt=LeaseClock())


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedSession:
    """A session that is being driven, or that a worker left behind."""

    session_id: str
    agent_type: str
    since: datetime | None
    """When its run began."""
    last_sign: datetime
    lease_expires_at: datetime
    is_lost: bool
    """The lease has run out, and its run has not ended."""
    is_silent: bool
    """Without a sign of the agent for `STUCK_MINUTES`."""


@dataclass(slots=True, kw_only=True)
class WorkerLine:
    """A worker, or another owner of leases."""

    name: str
    row: Worker | None
    is_alive: bool
    count: int = 0
    lost: int = 0
    silent: int = 0
    until: datetime | None = None
    """When the last of its leases runs out, unless it is renewed."""
    driven: list[OwnedSession] = field(default_factory=list)
    """The first of what it drives."""

    @property
    def since(self) -> datetime | None:
        """Since when it is up; without a row, since when it drives the oldest run that is named."""
        if self.row is not None:
            return self.row.started_at
        return min((each.since for each in self.driven if each.since is not None), default=None)

    @property
    def unnamed(self) -> int:
        """How many more it drives."""
        return self.count - len(self.driven)

    @property
    def load(self) -> float:
        """How busy it is, of 100."""
        most = self.row.concurrency if self.row is not None else 0
        return min(100.0, 100 * (self.count - self.lost) / most) if most else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """All of them, those that died last."""

    lines: list[WorkerLine]
    is_cut: bool
    """There are more leases than were looked at."""

    @property
    def alive(self) -> int:
        """How many are alive."""
        return sum(line.is_alive for line in self.lines)

    @property
    def driven(self) -> int:
        """How many sessions are driven by those that are alive."""
        return sum(line.count - line.lost for line in self.lines if line.is_alive)


def workers(now: datetime) -> Workers:
    """Three queries: the rows of workers, the leases by their index, and the runs of those that are named."""
    leases = _leases()
    by_owner: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for lease in leases[:MOST_DRIVEN]:
        by_owner[lease["lease_owner"]].append(lease)
    for owned in by_owner.values():  # what needs a look first
        owned.sort(key=lambda lease: (lease["is_held"], _sign(lease)))
    began = _began([lease["session_id"] for owned in by_owner.values() for lease in owned[:NAMED]])
    rows = {row.owner: row for row in stored(Worker).heard_since(now - FORGOTTEN)}
    lines = [_line(name, rows.get(name), by_owner.get(name, []), began, now) for name in {*rows, *by_owner}]
    lines.sort(key=lambda line: (not line.is_alive, -line.count, line.name))
    return Workers(lines=lines, is_cut=len(leases) > MOST_DRIVEN)


def _line(
    name: str, row: Worker | None, leases: list[dict[str, Any]], began: dict[str, datetime], now: datetime
) -> WorkerLine:
    quiet = now - timedelta(minutes=conf.STUCK_MINUTES)
    driven = [
        OwnedSession(
            session_id=lease["session_id"],
            agent_type=lease["agent_type"],
            since=began.get(lease["session_id"]),
            last_sign=_sign(lease),
            lease_expires_at=lease["lease_expires_at"],
            is_lost=not lease["is_held"],
            is_silent=lease["run_id"] is not None and _sign(lease) < quiet,
        )
        for lease in leases
    ]
    lost = sum(each.is_lost for each in driven)
    heard = row is not None and row.seen_at >= now - ALIVE
    return WorkerLine(
        name=name,
        row=row,
        is_alive=heard or (row is None and lost < len(driven)),
        count=len(driven),
        lost=lost,
        silent=sum(each.is_silent for each in driven),
        until=max((each.lease_expires_at for each in driven), default=None),
        driven=driven[:NAMED],
    )


def _leases() -> list[dict[str, Any]]:
    """Leases that are held, and those that ran out with a run under way."""
    columns = ("session_id", "agent_type", "run_id", "lease_owner", "lease_expires_at")
    rows = (
        stored(Session)
        .filter(_HELD | RUNNING, lease_owner__isnull=False, lease_expires_at__isnull=False)
        .annotate(is_held=ExpressionWrapper(_HELD, output_field=BooleanField()))
        .order_by("agent_type", "session_id")
    )
    return list(rows.values(*columns, "is_held", "last_agent_activity_at", "updated_at")[: MOST_DRIVEN + 1])


def _began(session_ids: list[str]) -> dict[str, datetime]:
    if not session_ids:
        return {}
    rows = stored(Run).running().filter(session__session_id__among=session_ids)
    return dict(rows.values_list("session_id", "started_at"))


def _sign(lease: dict[str, Any]) -> datetime:
    found: datetime = lease["last_agent_activity_at"] or lease["updated_at"]
    return found
