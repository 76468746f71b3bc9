"""Committed boundaries of a session."""

from typing import Self

from django.db import models

from helix_sessions.models.constraints import non_negative, one_of, session_key
from helix_sessions.models.fields import DocumentField, IdField
from helix_sessions.types import SESSION_STATUSES


class CheckpointQuerySet(models.QuerySet["Checkpoint"]):
    def newest_first(self) -> Self:
        """The last written first, regardless of its step count."""
        return self.order_by("-seq")


class Checkpoint(models.Model):
    """The state as it was: `frame` holds it without the custom state, which is at `state_number`.

    `seq` is the event that recorded it, and so the order of writing. `fingerprint` is what a repeated
    commit is compared with.
    """

    pk = models.CompositePrimaryKey("session_id", "checkpoint_id")
    session = session_key()
    checkpoint_id = IdField(max_length=512)
    seq = models.BigIntegerField()
    step_count = models.BigIntegerField()
    status = IdField(max_length=16)
    source = IdField(max_length=16)
    message_count = models.BigIntegerField()
    frame = DocumentField()
    state_number = models.BigIntegerField()
    state_base = models.BigIntegerField()
    run_id = IdField(null=True)
    step_id = IdField(null=True)
    metadata = DocumentField(default=dict)
    fingerprint = IdField(max_length=32, digest=True)
    created_at = models.DateTimeField()

    objects = CheckpointQuerySet.as_manager()

    class Meta:
        constraints = [
            one_of("status", SESSION_STATUSES, "helix_checkpoint_status"),
            non_negative("helix_checkpoint_counters", "step_count", "message_count"),
            models.UniqueConstraint(fields=["session", "seq"], name="helix_checkpoint_seq"),
        ]

    def __str__(self) -> str:
        return str(self.checkpoint_id)
