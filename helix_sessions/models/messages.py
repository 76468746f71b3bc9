"""The transcript."""

from typing import Any, Self

from django.db import models

from helix_sessions.models.constraints import non_negative, one_of, session_key
from helix_sessions.models.fields import DocumentField, IdField, beginning_of, size_of
from helix_sessions.types import ROLES


class MessageQuerySet(models.QuerySet["Message"]):
    def visible(self) -> Self:
        """Part of the transcript: not truncated."""
        return self.filter(truncated_seq__isnull=True)

    def in_brief(self, characters: int) -> "models.QuerySet[Message, Any]":
        """As dicts, with `text`, the beginning of the message's JSON, and `size`, its characters."""
        return self.values(
            "position",
            "seq",
            "role",
            "truncated_seq",
            text=beginning_of("content", characters),
            size=size_of("content"),
        )


class Message(models.Model):
    """One message. `seq` is the event that recorded it; a truncated message loses its position and stays for
    the log, with the event that truncated it."""

    pk = models.CompositePrimaryKey("session_id", "position", "seq")
    session = session_key()
    position = models.BigIntegerField()
    seq = models.BigIntegerField()
    role = IdField(max_length=16)
    content = DocumentField()
    truncated_seq = models.BigIntegerField(null=True)

    objects = MessageQuerySet.as_manager()

    class Meta:
        constraints = [
            one_of("role", ROLES, "helix_message_role"),
            non_negative("helix_message_position", "position", "seq"),
        ]

    def __str__(self) -> str:
        return f"{self.session_id} message {self.position}"
