"""Documents that the driver of a session keeps with it, under its own keys."""

from django.db import models

from helix_sessions.models.constraints import session_key
from helix_sessions.models.fields import DocumentField, IdField


class Note(models.Model):
    """One document under a key. `run_id` is the run that wrote it; notes can be listed by it."""

    pk = models.CompositePrimaryKey("session_id", "key")
    session = session_key()
    key = IdField()
    run_id = IdField(null=True)
    document = DocumentField()

    class Meta:
        indexes = [
            models.Index(
                fields=["run_id"], condition=models.Q(run_id__isnull=False), name="helix_note_run_idx"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.session_id} note {self.key}"
