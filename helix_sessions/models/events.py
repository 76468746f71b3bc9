"""The append-only log."""

from typing import Any

from django.db import models

from helix_sessions.models.constraints import at_least, session_key
from helix_sessions.models.fields import DocumentField, IdField, beginning_of, size_of


class EventQuerySet(models.QuerySet["Event"]):
    def in_brief(self, characters: int) -> "models.QuerySet[Event, Any]":
        """As dicts, with `text`, the beginning of the data's JSON, and `size`, its characters, instead of
        the data: a page of a log costs the same however large its documents are."""
        return self.values(
            "seq",
            "type",
            "turn_id",
            "run_id",
            "created_at",
            "message_position",
            text=beginning_of("data", characters),
            size=size_of("data"),
        )


class Event(models.Model):
    """Something that happened. Never changed while its session lives: a trigger refuses it.

    The event of a message has no data of its own; `message_position` and `seq` find the message.
    """

    pk = models.CompositePrimaryKey("session_id", "seq")
    session = session_key()
    seq = models.BigIntegerField()
    type = IdField()
    data = DocumentField(null=True)
    message_position = models.BigIntegerField(null=True)
    turn_id = IdField(null=True)
    run_id = IdField(null=True)
    created_at = models.DateTimeField()

    objects = EventQuerySet.as_manager()

    class Meta:
        constraints = [at_least(1, "helix_event_seq", "seq")]
        indexes = [
            models.Index(
                fields=["session", "turn_id", "seq"],
                name="helix_event_turn_idx",
                condition=models.Q(turn_id__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return f"{self.session_id} #{self.seq} {self.type}"


class EventKey(models.Model):
    """The idempotency key an event was emitted with. `record` is the event itself, once it is archived."""

    pk = models.CompositePrimaryKey("session_id", "key")
    session = session_key()
    key = IdField()
    seq = models.BigIntegerField()
    record = DocumentField(null=True)

    def __str__(self) -> str:
        return f"{self.session_id} {self.key}"
