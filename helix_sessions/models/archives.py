"""Parts of the event log that are in a file storage."""

from django.db import models

from helix_sessions.models.constraints import session_key
from helix_sessions.models.fields import IdField


class ArchivedRange(models.Model):
    """The events `first_seq` to `last_seq` of a session are in the file `name` of the storage with the
    alias `storage`, as compressed JSON Lines, and no longer in the log."""

    pk = models.CompositePrimaryKey("session_id", "first_seq")
    session = session_key()
    first_seq = models.BigIntegerField()
    last_seq = models.BigIntegerField()
    storage = IdField()
    name = models.CharField(max_length=1024)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(first_seq__gte=1, last_seq__gte=models.F("first_seq")),
                name="helix_archive_range",
            ),
        ]
        indexes = [models.Index(fields=["name"], name="helix_archive_name_idx")]

    def __str__(self) -> str:
        return f"{self.session_id} events {self.first_seq} to {self.last_seq}"
