"""Actions of operators on all sessions that a filter finds, carried out in batches in the background."""

from datetime import datetime
from typing import Self

from django.db import models

from helix_sessions.models.constraints import at_least, one_of
from helix_sessions.models.fields import DocumentField, IdField

BULK_STATES = ("waiting", "running", "stopping", "stopped", "done", "failed")
OPEN_STATES = ("waiting", "running", "stopping")


class BulkActionQuerySet(models.QuerySet["BulkAction"]):
    def unfinished(self) -> Self:
        """With something left to do."""
        return self.filter(state__in=OPEN_STATES)

    def free(self, now: datetime) -> Self:
        """Unfinished, and no process works on it."""
        return self.unfinished().filter(models.Q(claimed_until=None) | models.Q(claimed_until__lt=now))


class BulkAction(models.Model):
    """One action on the sessions of a filter, and how far it has come. `cursor` is the last session that was
    looked at, by id; sessions that were created after it began are not among them."""

    bulk_id = IdField(primary_key=True, max_length=64)
    action = IdField(max_length=64)
    query = models.TextField()
    """The filter of the list, as the query of its address."""
    answers = DocumentField(default=dict, searchable=True)
    """What the operator answered on the page of the action, as it was sent."""
    user_key = IdField()
    username = models.CharField(max_length=255)
    state = IdField(max_length=16, default="waiting")
    cursor = IdField(default="")
    expected = models.BigIntegerField(default=0)
    """How many sessions there were when it began, or one more than are counted."""
    done = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    failures = DocumentField(default=list, searchable=True)
    """The first sessions that were left as they are, and why."""
    error = models.TextField(default="")
    claim = IdField(max_length=64, null=True)
    claimed_until = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    objects = BulkActionQuerySet.as_manager()

    class Meta:
        constraints = [
            one_of("state", BULK_STATES, "helix_bulk_state"),
            at_least(0, "helix_bulk_numbers", "expected", "done", "failed"),
        ]
        indexes = [
            models.Index(fields=["-created_at"], name="helix_bulk_newest"),
            models.Index(
                fields=["created_at"],
                name="helix_bulk_open_idx",
                condition=models.Q(state__in=OPEN_STATES),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.bulk_id}"
