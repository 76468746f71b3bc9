"""What crashes leave behind: staged writes nobody will promote, runs nobody drives, keys nobody will use."""

import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from django.utils import timezone

from helix_sessions.models import IdempotentAnswer, Session, StagedChange
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.store import Store
from helix_sessions.store.keyed import idempotency
from helix_sessions.store.maintenance import failures
from helix_sessions.store.runs import rescue
from helix_sessions.store.state import staging
from helix_sessions.types import DebrisSummary

_PAGE = 200
_log = logging.getLogger("helix_sessions.debris")


def cleanup_debris(
    store: Store,
    *,
    staged_for: timedelta = timedelta(days=1),
    stuck_for: timedelta = timedelta(minutes=30),
    wake: bool = False,
    dry_run: bool = False,
    should_stop: Callable[[], bool] | None = None,
) -> DebrisSummary:
    """Remove staged writes older than `staged_for` and expired idempotency keys; report sessions whose
    run is running though they have not changed for `stuck_for`, and with `wake` close those runs.

    A session that is only slow, with a model call longer than `stuck_for`, looks stuck as well: choose
    it longer than your slowest step before you wake.
    """
    inputs.period(staged_for, "staged_for")
    now = timezone.now()
    stuck = tuple(_stuck(store, now - inputs.period(stuck_for, "stuck_for")))
    woken = errors = 0
    if wake and not dry_run:
        for session_id in stuck:
            if should_stop is not None and should_stop():
                break
            try:
                rescue.wake(store, session_id)
                woken += 1
            except Exception as error:
                errors += 1
                failures.report(_log, f"Session {session_id!r} could not be woken", error)
    return DebrisSummary(
        staged_removed=_removed_staging(store, staged_for, now, dry_run),
        stuck=stuck,
        woken=woken,
        keys_removed=_removed_keys(store, now, dry_run),
        errors=errors,
    )


def _stuck(store: Store, since: datetime) -> Iterator[str]:
    rows = Session.objects.using(store.using).stuck(since).order_by("session_id")
    last = ""
    while page := list(rows.filter(session_id__gt=last).values_list("session_id", flat=True)[:_PAGE]):
        yield from page
        last = page[-1]


def _removed_staging(store: Store, staged_for: timedelta, now: datetime, dry_run: bool) -> int:
    if not dry_run:
        return staging.cleanup_orphaned_staging(store, older_than=staged_for)
    idle = Session.objects.using(store.using).filter(run_id__isnull=True).values("session_id")
    old = StagedChange.objects.using(store.using).filter(staged_at__lt=now - staged_for)
    return old.filter(session_id__in=idle).count()


def _removed_keys(store: Store, now: datetime, dry_run: bool) -> int:
    """The answers kept for repeated requests."""
    if not dry_run:
        return idempotency.prune_idempotency_keys(store)
    return IdempotentAnswer.objects.using(store.using).filter(expires_at__lte=now).count()
