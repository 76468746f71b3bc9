"""The inbox: prompts that were admitted, and whether they have been promoted to messages."""

from typing import Self

from django.db import models

from helix_sessions.models.clocks import LeaseClock
from helix_sessions.models.constraints import non_negative, one_of, session_key
from helix_sessions.models.fields import DocumentField, IdField
from helix_sessions.types import DELIVERIES

PENDING = models.Q(promoted_seq__isnull=True, cancelled_seq__isnull=True)


class InputQuerySet(models.QuerySet["Input"]):
    def pending(self) -> Self:
        """Neither promoted nor cancelled."""
        return self.filter(PENDING)

    def unattended(self) -> Self:
        """Pending in a session without an owner that waits for neither a client nor a sub-session. A stopped
        session counts only from its next input on."""
        expired = models.Q(session__lease_expires_at__isnull=True) | models.Q(
            session__lease_expires_at__lte=LeaseClock()
        )
        goes_on = models.Q(session__status__in=("active", "completed", "failed"))
        fresh = models.Q(
            session__status__in=("interrupted", "paused"), created_at__gt=models.F("session__status_since")
        )
        answered = models.Q(session__awaiting_client=False, session__awaiting_children=False)
        return self.pending().filter(expired, goes_on | fresh, answered)

    def in_order(self) -> Self:
        """In the order of admission."""
        return self.order_by("admitted_seq")


class Input(models.Model):
    """A prompt. The numbers are those of the events that admitted it, cancelled it, or made it a message."""

    pk = models.CompositePrimaryKey("session_id", "input_id")
    session = session_key()
    input_id = IdField()
    prompt = DocumentField()
    delivery = IdField(max_length=16)
    admitted_delivery = IdField(max_length=16)
    admitted_seq = models.BigIntegerField()
    promoted_seq = models.BigIntegerField(null=True)
    cancelled_seq = models.BigIntegerField(null=True)
    created_at = models.DateTimeField()

    objects = InputQuerySet.as_manager()

    class Meta:
        constraints = [
            one_of("delivery", DELIVERIES, "helix_input_delivery"),
            non_negative("helix_input_seq", "admitted_seq"),
        ]
        indexes = [
            models.Index(
                fields=["session", "admitted_seq"], name="helix_input_pending_idx", condition=PENDING
            )
        ]

    def __str__(self) -> str:
        return f"{self.session_id} input {self.input_id}"


class InputClaim(models.Model):
    """Which session of an owner an input id belongs to. Sessions without an owner share one scope."""

    pk = models.CompositePrimaryKey("input_id", "owner_key")
    input_id = IdField()
    owner_key = IdField(db_default="")
    """The owner's key as text; empty for sessions without an owner."""
    session_id = IdField()

    def __str__(self) -> str:
        return str(self.input_id)
