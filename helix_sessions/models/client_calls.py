"""Tool calls that wait, or waited, for a person or a client."""

from django.db import models

from helix_sessions.models.constraints import session_key
from helix_sessions.models.fields import IdField


class ClientCall(models.Model):
    """Which session of a tree a call belongs to, and whether its answer was consumed.

    The session is the tree's root, so that an answer sent there finds its owner. Rows stay as long as the
    root, so that a repeated answer is recognized however late.
    """

    pk = models.CompositePrimaryKey("session_id", "tool_call_id", "owner_session_id")
    session = session_key()
    tool_call_id = IdField(max_length=256)
    owner_session_id = IdField()
    requested_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True)
    expired = models.BooleanField(default=False)
    late_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.owner_session_id} {self.tool_call_id}"
