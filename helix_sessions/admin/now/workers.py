"""The workers that are alive, and what they drive."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from helix_sessions.admin.base import stored
from helix_sessions.models import Session, Worker
from helix_sessions.store.driving.workers import ALIVE

MOST_DRIVEN = 500
SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """A session that is being driven."""

    session_id: str
    agent_type: str
    last_sign: datetime
    lease_expires_at: datetime
    is_lost: bool
    """Its lease has run out."""


@dataclass(slots=True, kw_only=True)
class WorkerLine:
    """A worker, or another process that holds leases."""

    name: str
    row: Worker | None
    is_alive: bool
    driven: list[Driven] = field(default_factory=list)

    @property
    def shown(self) -> list[Driven]:
        """The first of what it drives."""
        return self.driven[:SHOWN]

    @property
    def unshown(self) -> int:
        """How many more it drives."""
        return max(len(self.driven) - SHOWN, 0)

    @property
    def load(self) -> float:
        """How busy it is, of 100."""
        most = self.row.concurrency if self.row is not None else 0
        return min(100.0, 100 * len(self.driven) / most) if most else 0.0


def workers(now: datetime) -> list[WorkerLine]:
    """Workers by name, those that died last. Two queries: the rows of workers, and the sessions that run."""
    lines: dict[str, WorkerLine] = {
        row.owner: WorkerLine(name=row.owner, row=row, is_alive=row.seen_at >= now - ALIVE)
        for row in stored(Worker).heard_since(now - timedelta(hours=1)).order_by("started_at")
    }
    found: defaultdict[str, list[Driven]] = defaultdict(list)
    for row in _leased():
        is_lost = row["lease_expires_at"] < now
        sign = row["last_agent_activity_at"] or row["updated_at"]
        found[row["lease_owner"]].append(
            Driven(
                session_id=row["session_id"],
                agent_type=row["agent_type"],
                last_sign=sign,
                lease_expires_at=row["lease_expires_at"],
                is_lost=is_lost,
            )
        )
    for name, driven in found.items():
        held = any(not each.is_lost for each in driven)
        line = lines.setdefault(name, WorkerLine(name=name, row=None, is_alive=held))
        line.driven = driven
    return sorted(lines.values(), key=lambda line: (not line.is_alive, line.name))


def _leased() -> list[dict[str, Any]]:
    columns = ("session_id", "agent_type", "lease_owner", "lease_expires_at")
    rows = stored(Session).running().exclude(lease_owner=None).order_by("-created_at", "-session_id")
    return list(rows.values(*columns, "last_agent_activity_at", "updated_at")[:MOST_DRIVEN])
