"""References of a session to its sub-sessions."""

from django.db import models

from helix_sessions.models.constraints import one_of, session_key
from helix_sessions.models.fields import DocumentField, IdField
from helix_sessions.types import REF_LOCATIONS, REF_MODES, SESSION_STATUSES


class SubSessionRef(models.Model):
    """A reference; the sub-session itself may be elsewhere, or not exist yet. `seq` is the event
    that recorded it, and so the order of adding."""

    pk = models.CompositePrimaryKey("session_id", "sub_session_id")
    session = session_key()
    sub_session_id = IdField()
    seq = models.BigIntegerField()
    agent_type = IdField()
    parent_tool_call_id = IdField(null=True)
    status = IdField(max_length=16, default="active")
    mode = IdField(max_length=16, default="ephemeral")
    location = IdField(max_length=16, default="local")
    result = DocumentField(null=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            one_of("status", SESSION_STATUSES, "helix_ref_status"),
            one_of("mode", REF_MODES, "helix_ref_mode"),
            one_of("location", REF_LOCATIONS, "helix_ref_location"),
        ]

    def __str__(self) -> str:
        return f"{self.session_id} -> {self.sub_session_id}"
