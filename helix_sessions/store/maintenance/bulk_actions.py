"""The rows of bulk actions: made, claimed by one process at a time, moved on batch by batch, stopped."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F
from django.utils import timezone

from helix_sessions.models import BulkAction
from helix_sessions.store.engine.connection import transaction_on
from helix_sessions.store.engine.ids import new_id

CLAIM = timedelta(seconds=120)
"""After so long without a sign, the process that works on it is taken for dead, and another goes on."""

MOST_FAILURES = 200
"""So many sessions that were left as they are are listed."""

KEPT = timedelta(days=30)


def create(
    using: str,
    action: str,
    query: str,
    answers: Mapping[str, Any],
    *,
    user_key: str,
    username: str,
    expected: int,
) -> BulkAction:
    """Note an action that is to be carried out, and forget those of a month ago."""
    now = timezone.now()
    row = BulkAction(
        bulk_id=new_id(),
        action=action,
        query=query,
        answers=dict(answers),
        user_key=user_key,
        username=username[:255],
        expected=expected,
        created_at=now,
        updated_at=now,
    )
    with transaction_on(using):
        BulkAction.objects.using(using).filter(created_at__lt=now - KEPT, ended_at__isnull=False).delete()
        row.save(using=using, force_insert=True)
    return row


def claim(using: str, now: datetime, bulk_id: str | None = None) -> BulkAction | None:
    """Take one that no process works on: this one, or that which waits longest."""
    rows = BulkAction.objects.using(using).free(now)
    if bulk_id is not None:
        rows = rows.filter(bulk_id=bulk_id)
    token = new_id()
    with transaction_on(using):
        first = rows.order_by("created_at").select_for_update(skip_locked=True).first()
        if first is None:
            return None
        state = "running" if first.state == "waiting" else first.state
        first.claim, first.claimed_until, first.state = token, now + CLAIM, state
        first.save(using=using, update_fields=["claim", "claimed_until", "state"])
    return first


def move_on(
    using: str, row: BulkAction, *, cursor: str, done: int, failures: Sequence[tuple[str, str]]
) -> bool:
    """Note a batch; whether the claim still holds and no operator has asked to stop."""
    now = timezone.now()
    listed = [*row.failures, *([key, why] for key, why in failures)][:MOST_FAILURES]
    with transaction_on(using):
        mine = BulkAction.objects.using(using).filter(bulk_id=row.bulk_id, claim=row.claim)
        moved = mine.update(
            cursor=cursor,
            done=F("done") + done,
            failed=F("failed") + len(failures),
            failures=listed,
            claimed_until=now + CLAIM,
            updated_at=now,
        )
    if moved:
        row.refresh_from_db(using=using)
    return bool(moved) and row.state == "running"


def release(using: str, row: BulkAction) -> None:
    """Leave the rest to others."""
    _end(using, row, row.state)


def finish(using: str, row: BulkAction, state: str, error: str = "") -> None:
    """It is done, stopped, or could not go on."""
    _end(using, row, state, error=error[:1_000], ended_at=timezone.now())


def _end(using: str, row: BulkAction, state: str, **more: Any) -> None:
    changes = {"claim": None, "claimed_until": None, "updated_at": timezone.now(), **more}
    if "ended_at" in more:
        changes["state"] = state
    with transaction_on(using):
        BulkAction.objects.using(using).filter(bulk_id=row.bulk_id, claim=row.claim).update(**changes)


def stop(using: str, bulk_id: str) -> bool:
    """Ask that it ends after its batch; one that no process works on ends at once. Whether it had to be."""
    now = timezone.now()
    with transaction_on(using):
        rows = BulkAction.objects.using(using).filter(bulk_id=bulk_id)
        row = rows.unfinished().select_for_update().first()
        if row is None:
            return False
        if row.claimed_until is None or row.claimed_until < now:
            rows.update(state="stopped", claim=None, claimed_until=None, ended_at=now, updated_at=now)
        else:
            rows.update(state="stopping", updated_at=now)
    return True
