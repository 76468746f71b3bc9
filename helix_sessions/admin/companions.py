"""What goes on beside a worker for the console: bulk actions, alerts, and counts of runs."""

from datetime import datetime

from django.contrib.auth.models import AnonymousUser
from django.utils import timezone

from helix_sessions.admin import bulk
from helix_sessions.admin.base import store
from helix_sessions.admin.bulk import BadFilter, matching
from helix_sessions.admin.paginator import COUNTED, bounded_count
from helix_sessions.runtime.companion import Companion
from helix_sessions.store.maintenance import run_tallies
from helix_sessions.store.outbox import alerts


class BulkRunner(Companion):
    """Looks for bulk actions that no process works on."""

    name = "helix-bulk-runner"
    failure = "Bulk actions could not be carried out."
    duty = "bulk actions"

    def step(self, *, to_the_end: bool) -> int:
        """Go on with one of them."""
        return bulk.advance(should_stop=bool if to_the_end else self._stop.is_set) is not None


class AlertWatcher(Companion):
    """Looks at the alerts that are due."""

    name = "helix-alert-watcher"
    failure = "Alerts could not be looked at."
    duty = "alerts"

    def step(self, *, to_the_end: bool) -> int:
        """Look at each that is due."""
        now = timezone.now()
        while look(now) and (to_the_end or not self._stop.is_set()):
            pass
        return 0


class RunCounter(Companion):
    """Counts the runs of the quarters of an hour that are over."""

    name = "helix-run-counter"
    failure = "Runs could not be counted."

    def step(self, *, to_the_end: bool) -> int:
        """Count what is over."""
        using, now = store().using, timezone.now()
        while run_tallies.tally(using, now) and (to_the_end or not self._stop.is_set()):
            pass
        return 0


def look(now: datetime) -> bool:
    """Look at one alert that is due; whether there was one."""
    using = store().using
    row = alerts.claim(using, now)
    if row is None:
        return False
    try:
        count = bounded_count(matching(AnonymousUser(), row.query))
    except BadFilter as error:
        alerts.fail(using, row, str(error) or "The list has no such filter.", now)
    else:
        alerts.settle(using, row, min(count, COUNTED), now, is_bounded=count > COUNTED)
    return True
