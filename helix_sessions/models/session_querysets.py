"""Sessions in the words of the domain: what runs, waits, is stuck, has expired."""

from datetime import datetime
from typing import TYPE_CHECKING, Self, cast

from django.db import connections, models
from django.db.models.functions import Coalesce, Now
from django.db.models.lookups import LessThan
from django.utils import timezone

from helix_sessions.models.clocks import LeaseClock
from helix_sessions.models.sql import IDS_WITH, agent_types
from helix_sessions.types import TERMINAL_STATUSES, TOMBSTONE, UNFINISHED_STATUSES

if TYPE_CHECKING:
    from helix_sessions.models.sessions import Session  # noqa: F401

UNFINISHED = models.Q(status__in=UNFINISHED_STATUSES)
RUNNING = UNFINISHED & models.Q(run_id__isnull=False)
AWAITING_CLIENT = UNFINISHED & models.Q(awaiting_client=True)
INTERRUPTED_BY_REQUEST = UNFINISHED & models.Q(interrupt_requested_at__isnull=False)


def is_expired(now: datetime | Now) -> models.Q:
    return UNFINISHED & models.Q(expires_at__lt=now)


def is_stuck(since: datetime) -> models.Q:
    """Running, without a sign of the agent since then; what an operator does is none."""
    return RUNNING & models.Q(LessThan(Coalesce("last_agent_activity_at", "updated_at"), since))


def is_unleased(now: datetime | None = None) -> models.Q:
    """Without a lease, or with an expired one."""
    expired = models.Q(lease_expires_at__lte=now or LeaseClock())
    return models.Q(lease_expires_at__isnull=True) | expired


def is_runnable(now: datetime | None = None) -> models.Q:
    """A driver has something to do, and they have none."""
    # By the clock that says when they are; leases go by the database's.
    return models.Q(runnable_at__lte=now or timezone.now()) & is_unleased(now)


class SessionQuerySet(models.QuerySet["Session"]):
    """Filters of sessions, by the words of the domain."""

    def active(self) -> Self:
        """Open for work."""
        return self.filter(status="active")

    def terminal(self) -> Self:
        """Completed or failed."""
        return self.filter(status__in=TERMINAL_STATUSES)

    def unfinished(self) -> Self:
        """Not terminal."""
        return self.filter(UNFINISHED)

    def running(self) -> Self:
        """Not ended, and a run is under way."""
        return self.filter(RUNNING)

    def awaiting_client(self) -> Self:
        """Not ended, and a tool call waits for a person or a client."""
        return self.filter(AWAITING_CLIENT)

    def waiting(self) -> Self:
        """Not ended, and waiting for a person, a client or a sub-session; those that wait longest first."""
        return self.filter(waiting_since__isnull=False).order_by("waiting_since", "session_id")

    def past_deadline(self, now: datetime) -> Self:
        """A pending tool call is past its deadline."""
        return self.filter(next_deadline__lte=now)

    def expired(self, now: datetime | None = None) -> Self:
        """Past their `expires_at` and not terminal."""
        return self.filter(is_expired(now or Now()))

    def interrupted_by_request(self) -> Self:
        """Not ended, asked to stop, and no driver has taken the request yet."""
        return self.filter(INTERRUPTED_BY_REQUEST)

    def stuck(self, since: datetime) -> Self:
        """Running without a sign of the agent since then."""
        return self.filter(is_stuck(since))

    def runnable(self, now: datetime | None = None) -> Self:
        """A driver has something to do, and they have none; the first to become runnable first."""
        return self.filter(is_runnable(now)).order_by("runnable_at", "session_id")

    def leased(self, now: datetime | None = None) -> Self:
        """An owner has a lease that has not expired."""
        return self.filter(lease_expires_at__gt=now or LeaseClock())

    def unleased(self, now: datetime | None = None) -> Self:
        """Without a lease, or with an expired one."""
        return self.filter(is_unleased(now))

    def abandoned(self, now: datetime | None = None) -> Self:
        """A run is under way, and the lease of its driver has expired."""
        return self.filter(run_id__isnull=False, lease_expires_at__lte=now or LeaseClock())

    def owned_by(self, owner_id: object) -> Self:
        return self.filter(owner_id=owner_id)

    def children_of(self, session_id: str) -> Self:
        return self.filter(parent_session_id=session_id)

    def tagged(self, tag: str) -> Self:
        return self.filter(tags__has=tag)

    def newest_first(self) -> Self:
        return self.order_by("-created_at", "-session_id")

    def ended_between(self, start: datetime, end: datetime) -> Self:
        """Entered a terminal status from `start` on and before `end`."""
        return self.terminal().filter(status_since__gte=start, status_since__lt=end)

    def id_begins_with(self, prefix: str) -> Self:
        """By a range of the key, which is an index scan on every engine."""
        found = self.filter(session_id__gte=prefix)
        above = next_prefix(prefix)
        return found if above is None else found.filter(session_id__lt=above)

    def ids_with(self, part: str, *, among: int, limit: int) -> list[str]:
        """The ids of some of the newest sessions that have this part, in any case; read from an index alone,
        tombstones included."""
        escaped = part.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        with connections[self.db].cursor() as cursor:
            cursor.execute(IDS_WITH, [among, f"%{escaped}%", limit])
            return [row[0] for row in cursor.fetchall()]

    def agent_types(self, limit: int) -> list[str]:
        """The first agent types by name. Each costs one index probe, for any number of sessions."""
        return agent_types(connections[self.db], limit)


_Sessions = models.Manager.from_queryset(SessionQuerySet)


class PresentSessions(_Sessions["Session"]):
    """All sessions but tombstones."""

    def get_queryset(self) -> SessionQuerySet:
        """Without tombstones."""
        return cast(SessionQuerySet, super().get_queryset().exclude(status=TOMBSTONE))


def next_prefix(prefix: str) -> str | None:
    """The least text above every text with this prefix, by code points; `None` if there is none."""
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1]) + 1
        if point == 0xD800:  # surrogates are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[: end - 1] + chr(point)
    return None
