"""What was said so far of the messages that are under way."""

from django.db import models

from helix_sessions.models.constraints import non_negative, session_key
from helix_sessions.models.fields import DocumentField, IdField


class FragmentBatch(models.Model):
    """Fragments of one message, from an index on. They go with the commit of the message.

    The table is unlogged on PostgreSQL, and has no foreign key: checking one would touch the row of the
    session, which is the driver's.
    """

    pk = models.CompositePrimaryKey("session_id", "message_id", "first_index")
    session = session_key(db_constraint=False)
    message_id = IdField(max_length=64)
    first_index = models.BigIntegerField()
    run_id = IdField()
    turn_id = IdField()
    after_seq = models.BigIntegerField()
    fragments = DocumentField()
    kept_at = models.DateTimeField()

    class Meta:
        constraints = [non_negative("helix_fragment_batch_numbers", "first_index", "after_seq")]

    def __str__(self) -> str:
        return f"{self.session_id} {self.message_id}/{self.first_index}"
