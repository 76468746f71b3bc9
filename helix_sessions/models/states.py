"""The custom states of a session."""

from django.db import models

from helix_sessions.models.constraints import session_key
from helix_sessions.models.fields import DocumentField


class StateSnapshot(models.Model):
    """One custom state of a session: whole where `base` is its own number, else the writes that
    lead there from the snapshot before. Checkpoints and the session point at a number; the state
    there is the base with every later snapshot's writes up to that number."""

    pk = models.CompositePrimaryKey("session_id", "number")
    session = session_key()
    number = models.BigIntegerField()
    base = models.BigIntegerField()
    document = DocumentField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(base__gte=1, base__lte=models.F("number")), name="helix_state_base"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.session_id} state {self.number}"
