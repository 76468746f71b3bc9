"""Alerts: taken by one process at a time, and their outcome, which webhooks are told of with it."""

from datetime import datetime, timedelta

from helix_sessions import models
from helix_sessions.store.engine import moments
from helix_sessions.store.engine.connection import execute, transaction_on
from helix_sessions.store.engine.dialect import dialect_of


def claim(using: str, now: datetime) -> models.Alert | None:
    """Take the alert that is longest due. No other process takes it before its next look."""
    rows = models.Alert.objects.using(using)
    with transaction_on(using):
        row = rows.due(now).order_by("next_check_at").select_for_update(skip_locked=True).first()
        if row is not None:
            row.next_check_at = now + timedelta(seconds=row.every_seconds)
            rows.filter(pk=row.pk).update(next_check_at=row.next_check_at)
    return row


def settle(
    using: str, row: models.Alert, count: int, now: datetime, *, is_bounded: bool = False
) -> str | None:
    """Note how many sessions there are. If it fires now and did not, or the other way round, webhooks are
    told in the same transaction; the type of what they are told, or `None`."""
    fires = count >= row.threshold
    with transaction_on(using) as connection:
        rows = models.Alert.objects.using(using).filter(pk=row.pk)
        before = rows.select_for_update().first()
        if before is None or before.next_check_at != row.next_check_at:
            return None
        changes = {"count": count, "checked_at": now, "error": ""}
        if fires == before.is_firing:
            rows.update(**changes)
            return None
        rows.update(**changes, is_firing=fires, changed_at=now)
        kind = "alert.firing" if fires else "alert.resolved"
        data = {
            "alert_id": row.alert_id,
            "name": row.name,
            "query": row.query,
            "count": count,
            "is_bounded": is_bounded,
            "threshold": row.threshold,
        }
        dialect = dialect_of(connection)
        execute(connection, *moments.told_alone(dialect, kind, data, now))
    return kind


def fail(using: str, row: models.Alert, error: str, now: datetime) -> None:
    """Note that the alert could not be looked at."""
    with transaction_on(using):
        models.Alert.objects.using(using).filter(pk=row.pk).update(error=error[:500], checked_at=now)
