"""What crashes leave behind: staged writes nobody will promote, runs nobody drives, keys nobody will use."""

import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from django.utils import timezone

from helix_sessions.models import IdempotentAnswer, Session, StagedChange
from helix_sessions.store import failures, inputs
from helix_sessions.store.idempotency import Idempotency
from helix_sessions.store.staging import Staging
from helix_sessions.store.wakes import Wakes
from helix_sessions.types import DebrisSummary

_PAGE = 200
_log = logging.getLogger("helix_sessions.debris")


class Debris(Staging, Wakes, Idempotency):
    """Debris."""

    def cleanup_debris(
        self,
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
        stuck = tuple(self._stuck(now - inputs.period(stuck_for, "stuck_for")))
        woken = errors = 0
        if wake and not dry_run:
            for session_id in stuck:
                if should_stop is not None and should_stop():
                    break
                try:
                    self.wake(session_id)
                    woken += 1
                except Exception as error:
                    errors += 1
                    failures.report(_log, f"Session {session_id!r} could not be woken", error)
        return DebrisSummary(
            staged_removed=self._removed_staging(staged_for, now, dry_run),
            stuck=stuck,
            woken=woken,
            keys_removed=self._removed_keys(now, dry_run),
            errors=errors,
        )

    def _stuck(self, since: datetime) -> Iterator[str]:
        rows = Session.objects.using(self.using).stuck(since).order_by("session_id")
        last = ""
        while page := list(rows.filter(session_id__gt=last).values_list("session_id", flat=True)[:_PAGE]):
            yield from page
            last = page[-1]

    def _removed_staging(self, staged_for: timedelta, now: datetime, dry_run: bool) -> int:
        if not dry_run:
            return self.cleanup_orphaned_staging(older_than=staged_for)
        idle = Session.objects.using(self.using).filter(run_id__isnull=True).values("session_id")
        old = StagedChange.objects.using(self.using).filter(staged_at__lt=now - staged_for)
        return old.filter(session_id__in=idle).count()

    def _removed_keys(self, now: datetime, dry_run: bool) -> int:
        """The answers kept for repeated requests."""
        if not dry_run:
            return self.prune_idempotency_keys()
        return IdempotentAnswer.objects.using(self.using).filter(expires_at__lte=now).count()
