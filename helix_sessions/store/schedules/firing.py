"""Firing: what is due becomes a session with an input, once.

A schedule is fired under its row's lock, and its session, its input, the row of the firing and the time of
the next one are one transaction: a process that dies leaves nothing, and another fires it. The ids of session
and input come from the schedule and the firing's time, so that a repeat would find them taken.
"""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, takewhile

from django.db import DatabaseError
from django.db.models import Q
from django.utils import timezone

from helix_sessions import models, signals
from helix_sessions.exceptions import HelixSessionsError, InvalidInput, SessionBusy, StoreUnavailable
from helix_sessions.models.schedules import plan_of
from helix_sessions.store.engine.connection import after_commit, transaction_on
from helix_sessions.store.engine.store import Store
from helix_sessions.store.inbox import inbox
from helix_sessions.store.schedules import schedules
from helix_sessions.store.sessions import create
from helix_sessions.types import TERMINAL_STATUSES, ScheduleFiring

MISSED_AFTER = timedelta(minutes=1)
KEPT_FIRINGS = 100
"""So many firings of a schedule can be looked at."""
MAX_ERROR = 500
_AT_ONCE = 200
_SUSPENDED = "suspended_"

_log = logging.getLogger("helix_sessions.schedules")


def fire_schedules(store: Store) -> int:
    """Fire what is due, each once, however many processes call this; return how many firings were made.
    `run_sessions` calls it.

    A firing whose time is a minute past was missed: the last `catch_up` of these are made good, one
    after another. One that is due while the firing before is pending, running or waiting is skipped or
    queued, as the schedule says.
    """
    made = 0
    some = due(store, timezone.now()).order_by("next_at").values_list("schedule_id", flat=True)[:_AT_ONCE]
    for schedule_id in list(some):
        try:
            made += _fire_one(store, schedule_id)
        except (DatabaseError, HelixSessionsError):  # it is as it was, and fired by the next call
            _log.exception("Schedule %s could not be fired.", schedule_id)
    return made


def run_schedule(store: Store, schedule_id: str) -> ScheduleFiring:
    """Fire a schedule now, enabled or not. While the firing before is pending, running or waiting it is
    queued."""
    with transaction_on(store.using):
        row = schedules.find(store, schedule_id, lock=True)
        now = timezone.now()
        while row.firings.using(store.using).filter(firing_at=now).exists():
            now += timedelta(microseconds=1)
        firing = _Firing(store, row, now).make(now, queues=True)
        _note(store, row, *_TOLD)
    return schedules.firing_value(firing)


_TOLD = ("last_firing_at", "last_error")


def _note(store: Store, row: models.Schedule, *names: str) -> None:
    """Write what was noted of a locked schedule; the rest is its owner's."""
    noted = {name: getattr(row, name) for name in names}
    models.Schedule.objects.using(store.using).filter(pk=row.pk).update(**noted)


def due(store: Store, now: datetime) -> schedules.Rows:
    """Schedules with a firing that is due or queued, or whose first one is not worked out yet."""
    fresh = Q(next_at__isnull=True, enabled=True)
    queued = models.ScheduleFiring.objects.using(store.using).filter(state="queued").values("schedule_id")
    return schedules.rows_of(store).filter(Q(next_at__lte=now) | fresh | Q(schedule_id__in=queued))


def _fire_one(store: Store, schedule_id: str) -> int:
    made = 0
    with transaction_on(store.using):
        rows = schedules.rows_of(store).filter(schedule_id=schedule_id)
        row = rows.select_for_update(skip_locked=True, of=("self",)).first()
        if row is None:  # deleted, or being fired by another process
            return 0
        now = timezone.now()
        firing = _Firing(store, row, now)
        firing.release()
        if row.next_at is None or row.next_at <= now:
            try:
                for at, missed in _due_times(row, now) if row.enabled else ():
                    queues = missed or row.overlap == "queue"
                    made += firing.make(at, queues=queues).state in ("fired", "queued")
                row.next_at = schedules.times(row).next(now, 1)[0]
            except InvalidInput as error:  # it was entered past the checks
                row.enabled, row.next_at, row.last_error = False, None, str(error)[:MAX_ERROR]
            row.planned = plan_of(row)
        _note(store, row, "next_at", "planned", "enabled", *_TOLD)
    return made


def _due_times(row: models.Schedule, now: datetime) -> Iterator[tuple[datetime, bool]]:
    """The times to fire for, the earliest first, and whether each was missed. Missed ones that are not made
    good are left out."""
    if row.next_at is None or row.planned != plan_of(row):  # its times were changed past the checks
        return
    first, missed_until = row.next_at, now - MISSED_AFTER
    cron = schedules.times(row)
    missed = takewhile(lambda at: at >= first, cron.before(missed_until))
    yield from ((at, True) for at in reversed([*islice(missed, row.catch_up)]))
    on_time = max(first - timedelta(microseconds=1), missed_until)
    yield from ((at, False) for at in takewhile(lambda at: at <= now, cron.after(on_time)))


class _Firing:
    """Firings of one locked schedule."""

    def __init__(self, store: Store, schedule: models.Schedule, now: datetime) -> None:
        self.store = store
        self.schedule = schedule
        self.now = now
        self.rows = models.ScheduleFiring.objects.using(store.using).filter(schedule_id=schedule.pk)

    def make(self, at: datetime, *, queues: bool) -> models.ScheduleFiring:
        """Make the firing for this time, unless it was made. While the one before is under way it `queues`,
        or is skipped."""
        made = self.rows.filter(firing_at=at).first()
        if made is not None:
            return made
        before = self.rows.filter(state__in=("fired", "queued")).order_by("-firing_id").first()
        waits = before is not None and is_under_way(self.store.using, before)
        row = models.ScheduleFiring(schedule_id=self.schedule.pk, firing_at=at, made_at=self.now)
        row.state = "queued" if waits and queues else "skipped" if waits else "fired"
        if row.state != "skipped":
            self._admit(row)
        self.schedule.last_firing_at = at
        self.schedule.last_error = row.error
        row.save(using=self.store.using, force_insert=True)
        self._forget_old(row)
        self._announce(row)
        return row

    def release(self) -> None:
        """Let the first queued firing begin, if the one before it is over."""
        for row in self.rows.filter(state="queued").order_by("firing_id"):
            before = self.rows.filter(state="fired", firing_id__lt=row.firing_id)
            last = before.order_by("-firing_id").first()
            if last is not None and is_under_way(self.store.using, last):
                break
            row.state = "fired"
            try:
                with transaction_on(self.store.using):
                    self._start(row)
            except Exception as error:
                self._note(row, error)
            row.save(using=self.store.using, update_fields=["state", "error"])
            self._announce(row)

    def _admit(self, row: models.ScheduleFiring) -> None:
        """Give the session its prompt; one that is queued does not begin before it is released. Sessions that
        are kept queue their inputs themselves."""
        try:
            with transaction_on(self.store.using):
                row.session_id, row.input_id = self._session(row), _name(row)
                if self.schedule.session == "keep" and row.state == "queued":
                    row.state = "fired"
                self._tell(row)
                self._start(row)
        except Exception as error:
            self._note(row, error)

    def _start(self, row: models.ScheduleFiring) -> None:
        inbox.admit_input(
            self.store,
            str(row.session_id),
            self.schedule.prompt,
            input_id=row.input_id,
            delivery="queue",
            resume=row.state == "fired",
            priority=self.schedule.priority,
        )

    def _session(self, row: models.ScheduleFiring) -> str:
        """The session of a firing: that of the firings before if they keep to one, and it is still there and
        of the same owner and agent type."""
        schedule = self.schedule
        kept = self._kept() if schedule.session == "keep" else None
        if kept is not None:
            return kept
        state = create.ensure_session(
            self.store,
            _name(row),
            agent_type=schedule.agent_type,
            owner=schedule.owner_id,
            metadata={"schedule_id": schedule.pk, "title": schedule.name},
            priority=schedule.priority,
        )
        return state.session_id

    def _kept(self) -> str | None:
        last = self.rows.filter(session_id__isnull=False).order_by("-firing_id").first()
        sessions = models.Session.objects.using(self.store.using).filter(
            session_id=None if last is None else last.session_id,
            owner_id=self.schedule.owner_id,
            agent_type=self.schedule.agent_type,
        )
        return sessions.values_list("session_id", flat=True).first()

    def _tell(self, row: models.ScheduleFiring) -> None:
        told = {"schedule_id": row.schedule_id, "firing_at": row.firing_at.isoformat()}
        with self.store._write(str(row.session_id)) as work:
            work.event("schedule_fired", {**told, "input_id": row.input_id})

    def _note(self, row: models.ScheduleFiring, error: Exception) -> None:
        """Keep why a firing failed. A database that is busy or away is no reason: it is fired again."""
        if isinstance(error, DatabaseError | SessionBusy | StoreUnavailable):
            raise error
        _log.warning("Schedule %s: the firing of %s failed.", row.schedule_id, row.firing_at, exc_info=error)
        row.state, row.session_id, row.input_id = "failed", None, None
        row.error = f"{type(error).__name__}: {error}"[:MAX_ERROR]
        self.schedule.last_error = row.error

    def _forget_old(self, newest: models.ScheduleFiring) -> None:
        kept = self.rows.order_by("-firing_id").values_list("firing_id", flat=True)[:KEPT_FIRINGS]
        if newest.firing_id % 10 == 0 and len(oldest := list(kept)) == KEPT_FIRINGS:
            self.rows.filter(firing_id__lt=oldest[-1]).exclude(state="queued").delete()

    def _announce(self, row: models.ScheduleFiring) -> None:
        """Send the signal once the transaction has committed."""
        if not signals.schedule_fired.has_listeners(models.Schedule):
            return
        names = ("schedule_id", "firing_at", "state", "session_id", "error")
        told = {name: getattr(row, name) for name in names}
        send = partial(signals.schedule_fired.send_robust, models.Schedule, **told)
        after_commit(self.store._connection, send, robust=True)


def is_under_way(using: str, firing: models.ScheduleFiring) -> bool:
    """Whether the firing is pending, running or waiting. What else its session does is not looked at."""
    key = {"session_id": firing.session_id}
    given = models.Input.objects.using(using).filter(**key, input_id=firing.input_id).first()
    session = models.Session.objects.using(using).filter(**key).only("status").first()
    if given is None or session is None or given.cancelled_seq is not None:
        return False
    if given.promoted_seq is None:
        return True
    runs = models.Run.objects.using(using).filter(**key).order_by("turn")
    began = runs.filter(start_sequence__lte=given.promoted_seq).last()
    if began is None:  # it was promoted by hand
        return False
    # A suspended run goes on as another one, up to the first that ends.
    statuses = runs.filter(turn__gte=began.turn).values_list("status", flat=True)
    last = next((status for status in statuses if not status.startswith(_SUSPENDED)), None)
    if last is None:
        return session.status not in TERMINAL_STATUSES
    return last == "running"


def _name(row: models.ScheduleFiring) -> str:
    """The id of a firing's session and of its input."""
    at = row.firing_at.astimezone(UTC)
    return f"schedule-{row.schedule_id}-{at:%Y%m%dT%H%M%S}" + (f".{at:%f}" if at.microsecond else "")
