"""Workers that are alive: what drives sessions, and when it was last heard of."""

from datetime import datetime
from typing import Self

from django.db import models

from helix_sessions.models.constraints import at_least
from helix_sessions.models.fields import DocumentField, IdField


class WorkerQuerySet(models.QuerySet["Worker"]):
    def heard_since(self, then: datetime) -> Self:
        """Alive then, or after it."""
        return self.filter(seen_at__gte=then)


class Worker(models.Model):
    """One process that runs `run_sessions`. It renews its row every few seconds and removes it when it
    leaves; the row of a process that died is removed by the others."""

    owner = IdField(primary_key=True)
    """The name under which it holds leases."""
    host = models.CharField(max_length=255, default="")
    pid = models.BigIntegerField(default=0)
    concurrency = models.BigIntegerField(default=1)
    agents = DocumentField(default=list, searchable=True)
    """The agent types it drives; `*` for all."""
    driven = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()

    objects = WorkerQuerySet.as_manager()

    class Meta:
        constraints = [at_least(0, "helix_worker_numbers", "pid", "concurrency", "driven", "failed")]

    def __str__(self) -> str:
        return str(self.owner)
