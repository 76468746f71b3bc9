"""Removes what crashes leave behind, orphaned staged writes and abandoned runs, and what has expired."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from django.utils import timezone

from helix_sessions.content import blobs as content_blobs
from helix_sessions.models import IdempotentAnswer, Session, StagedChange
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.store import Store
from helix_sessions.store.keyed import blobs, idempotency
from helix_sessions.store.limits import spend_totals
from helix_sessions.store.maintenance.job import Job, ids_of
from helix_sessions.store.memory import upkeep as memory_upkeep
from helix_sessions.store.runs import rescue
from helix_sessions.store.state import staging
from helix_sessions.store.transcript import fragments
from helix_sessions.types import DebrisSummary

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
    """Remove staged writes older than `staged_for`, expired idempotency keys, expired memories, what was
    kept of messages that were never committed, and attachments that no session has and that are older
    than `BLOB_GRACE`. Add up what was spent, and forget the totals of days and months that are long over.
    Report sessions with a running run that have not changed for `stuck_for`, and with
    `wake` close those runs.

    A session with a model call longer than `stuck_for` looks stuck as well: choose `stuck_for` longer
    than your slowest step before you wake.
    """
    inputs.period(staged_for, "staged_for")
    now = timezone.now()
    since = now - inputs.period(stuck_for, "stuck_for")
    stuck = tuple(ids_of(Session.objects.using(store.using).stuck(since)))
    job = Job(DebrisSummary(stuck=stuck), _log, dry_run=dry_run, should_stop=should_stop)
    for session_id in job.over(stuck if wake and not dry_run else ()):
        with job.attempt(f"Session {session_id!r} could not be woken"):
            rescue.wake(store, session_id)
            job.count(woken=1)
    job.count(
        staged_removed=_removed_staging(store, staged_for, now, dry_run),
        keys_removed=_removed_keys(store, now, dry_run),
        fragments_removed=fragments.remove_orphaned(store.using, since, dry_run=dry_run),
        memories_removed=memory_upkeep.remove_expired(store.using, now, dry_run=dry_run),
        spend_removed=spend_totals.remove_old(store.using, dry_run=dry_run),
    )
    for blob in job.over(blobs.unused(store.using, now) if content_blobs.is_on() else ()):
        with job.attempt(f"The attachment {blob} could not be removed"):
            if dry_run or blobs.remove_unused(store.using, blob, now):
                job.count(blobs_removed=1)
    if content_blobs.is_on() and not job.is_stopped and not dry_run:
        job.count(blobs_removed=blobs.remove_strays(store.using, now))
    return job.summary


def _removed_staging(store: Store, staged_for: timedelta, now: datetime, dry_run: bool) -> int:
    if not dry_run:
        return staging.cleanup_orphaned_staging(store, older_than=staged_for)
    idle = Session.objects.using(store.using).filter(run_id__isnull=True).values("session_id")
    old = StagedChange.objects.using(store.using).filter(staged_at__lt=now - staged_for)
    return old.filter(session_id__in=idle).count()


def _removed_keys(store: Store, now: datetime, dry_run: bool) -> int:
    """Remove the expired idempotency keys; return how many."""
    if not dry_run:
        return idempotency.prune_idempotency_keys(store)
    return IdempotentAnswer.objects.using(store.using).filter(expires_at__lte=now).count()
