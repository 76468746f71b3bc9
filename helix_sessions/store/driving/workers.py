"""The presence of workers: each says every few seconds that it is alive."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import connections
from django.utils import timezone

from helix_sessions.models import Worker
from helix_sessions.store.engine.connection import connect, transaction_on

BEAT_SECONDS = 8.0
"""How often a worker says that it is alive."""

ALIVE = timedelta(seconds=20)
"""A worker that was not heard of for so long is taken for dead."""

FORGOTTEN = timedelta(hours=1)
"""After so long the row of a dead worker is removed."""


def beat(
    using: str,
    owner: str,
    *,
    host: str,
    pid: int,
    concurrency: int,
    agents: Iterable[str],
    started_at: datetime,
    driven: int = 0,
    failed: int = 0,
) -> None:
    """Note that a worker is alive, and what it has done; one statement after the first."""
    now = timezone.now()
    changes = {"seen_at": now, "driven": driven, "failed": failed, "agents": list(agents)}
    rows = Worker.objects.using(using)
    connect(connections[using])
    if rows.filter(owner=owner).update(**changes):
        return
    with transaction_on(using):
        first = Worker(
            owner=owner, host=host, pid=pid, concurrency=concurrency, started_at=started_at, **changes
        )
        first.save(using=using, force_insert=True)
        rows.filter(seen_at__lt=now - FORGOTTEN).delete()


def leave(using: str, owner: str) -> None:
    """Remove the row of a worker that stops."""
    with transaction_on(using):
        Worker.objects.using(using).filter(owner=owner).delete()
