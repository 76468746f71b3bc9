"""Counts of the runs that ended, one row for each quarter of an hour that is over.

The quarters are counted in order, so what is counted has no gaps; a reader counts what is before and after it
in the table of runs. A run that is imported, or deleted with its session, does not change what was counted:
these are the runs that ended here.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta

from django.db.models import Count, Max
from django.db.models.functions import TruncMinute

from helix_sessions.models import Run, RunTally
from helix_sessions.store.engine.connection import transaction_on

SLOT = timedelta(minutes=15)
SETTLED = timedelta(minutes=2)
"""A quarter is counted so long after its end: the last writes of it have been committed."""
KEPT = timedelta(days=16)
"""A little more than the longest window of the console."""
MOST_SLOTS = 96
"""So many are counted at once: a day."""


def slot_of(moment: datetime) -> datetime:
    """Where the quarter of a moment begins."""
    utc = moment.astimezone(UTC)
    return utc.replace(minute=utc.minute // 15 * 15, second=0, microsecond=0)


def tally(using: str, now: datetime) -> int:
    """Count the next quarters that are over; how many there were. Two who do it at once do no harm."""
    rows = RunTally.objects.using(using)
    first = slot_of(now - KEPT) + SLOT
    newest = rows.aggregate(newest=Max("slot"))["newest"]
    start = first if newest is None else max(first, newest + SLOT)
    end = min(start + MOST_SLOTS * SLOT, slot_of(now - SETTLED))
    if end <= start:
        return 0
    ended, failed = _counted(using, start, end)
    slots = [start + number * SLOT for number in range((end - start) // SLOT)]
    with transaction_on(using):
        rows.filter(slot__lt=first).delete()
        rows.bulk_create(
            [RunTally(slot=slot, ended=ended[slot], failed=failed[slot]) for slot in slots],
            ignore_conflicts=True,
        )
    return len(slots)


def _counted(using: str, start: datetime, end: datetime) -> tuple[Counter[datetime], Counter[datetime]]:
    """The runs that ended, and those of them that failed; out of the index alone."""
    found = (
        Run.objects.using(using)
        .filter(ended_at__gte=start, ended_at__lt=end)
        .annotate(minute=TruncMinute("ended_at", tzinfo=UTC))
        .order_by()
        .values_list("minute", "status")
        .annotate(count=Count("*"))
    )
    ended: Counter[datetime] = Counter()
    failed: Counter[datetime] = Counter()
    for minute, status, count in found:
        ended[slot_of(minute)] += count
        if status == "failed":
            failed[slot_of(minute)] += count
    return ended, failed
