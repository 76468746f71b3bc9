"""Writes of tools that wait for their step to be committed."""

from django.db import models

from helix_sessions.models.constraints import non_negative, session_key
from helix_sessions.models.fields import DocumentField, IdField


class StagedChange(models.Model):
    """The writes of one tool call; applied in the order of `place`."""

    pk = models.CompositePrimaryKey("session_id", "step_id", "tool_call_id")
    session = session_key()
    step_id = IdField()
    tool_call_id = IdField()
    place = models.BigIntegerField()
    writes = DocumentField()
    staged_at = models.DateTimeField()

    class Meta:
        constraints = [
            non_negative("helix_staged_place_positive", "place"),
            models.UniqueConstraint(fields=["session", "place"], name="helix_staged_place"),
        ]
        indexes = [models.Index(fields=["staged_at"], name="helix_staged_age_idx")]

    def __str__(self) -> str:
        return f"{self.session_id} {self.step_id}/{self.tool_call_id}"
