"""What is on its way to another database, a cell, or has gone there."""

from django.db import models

from helix_sessions.models.constraints import one_of
from helix_sessions.models.fields import DocumentField, IdField

ARRIVING = "arriving"
LEAVING = "leaving"
LEFT = "left"
SETTLING = "settling"


class MovedSession(models.Model):
    """A session that is hidden here, because it is live in another cell or will be. Its rows are those of a
    tombstone while it arrives or leaves; when it has left they are gone, and this row says where it went."""

    moved_id = IdField(primary_key=True)
    """The session's id. It is not the session's own row, and stays when that goes."""
    root_id = IdField()
    """The root of the tree that it moves with."""
    owner_key = IdField()
    """Its owner's key as text; empty for a session without one."""
    tenant = IdField()
    """The key of the owner who moves. A session of the tree may be another's."""
    state = IdField(max_length=16)
    cell = IdField()
    """The alias of the other database."""
    hidden = DocumentField(default=dict, searchable=True)
    """The columns of the session that a tombstone does not have, as they were."""
    since = models.DateTimeField()

    class Meta:
        constraints = [one_of("state", (ARRIVING, LEAVING, LEFT), "helix_moved_session_state")]
        indexes = [models.Index(fields=["tenant", "state", "root_id"], name="helix_moved_session_idx")]

    def __str__(self) -> str:
        return str(self.moved_id)


class MovedOwner(models.Model):
    """An owner whose sessions move. No session of theirs is created here while they arrive or leave, nor when
    they have left; when all of them are known here (`settling`), some may be created already."""

    tenant = IdField(primary_key=True)
    state = IdField(max_length=16)
    cell = IdField()
    progress = DocumentField(default=dict, searchable=True)
    """Where they arrive: what was counted of their spending, and which schedules are to be enabled."""
    since = models.DateTimeField()

    class Meta:
        constraints = [one_of("state", (ARRIVING, SETTLING, LEAVING, LEFT), "helix_moved_owner_state")]

    def __str__(self) -> str:
        return str(self.tenant)
