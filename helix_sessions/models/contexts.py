"""What the model sees of a session: its epoch, the updates since, and compactions of the transcript."""

from typing import Self

from django.db import models

from helix_sessions.models.constraints import at_least, non_negative, session_key
from helix_sessions.models.fields import DocumentField, IdField


class ContextEpoch(models.Model):
    """The baseline text of a model, and by source key the value it has: `[value, text if it is removed]`.

    `compaction_number` is the last compaction that the baseline knows of, `baseline_position` how many
    messages came before it.
    """

    session = models.OneToOneField(
        "helix_sessions.Session",
        on_delete=models.DO_NOTHING,
        primary_key=True,
        related_name="+",
    )
    baseline = DocumentField()
    snapshot = DocumentField()
    baseline_seq = models.BigIntegerField()
    baseline_position = models.BigIntegerField()
    compaction_number = models.BigIntegerField(default=0)
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            non_negative("helix_epoch_numbers", "baseline_seq", "baseline_position", "compaction_number")
        ]

    def __str__(self) -> str:
        return f"{self.session_id} context"


class ContextUpdate(models.Model):
    """A system message with changes of the context. `before` is the epoch's snapshot before it, as long as
    truncating the message would restore that snapshot."""

    pk = models.CompositePrimaryKey("session_id", "seq")
    session = session_key()
    seq = models.BigIntegerField()
    position = models.BigIntegerField()
    before = DocumentField(null=True)

    class Meta:
        constraints = [non_negative("helix_context_update_numbers", "seq", "position")]

    def __str__(self) -> str:
        return f"{self.session_id} context update {self.seq}"


class CompactionQuerySet(models.QuerySet["Compaction"]):
    def finished(self) -> Self:
        """Finished."""
        return self.filter(compacted_seq__isnull=False)

    def standing(self) -> Self:
        """Finished, with all of their messages still in the transcript."""
        return self.finished().filter(truncated_seq__isnull=True)


class Compaction(models.Model):
    """Messages that the model sees as one. It replaced those before `end_position`; those from
    `kept_position` on are in its text, the ones before in its summary. Without a `compacted_seq` it is in
    progress: no other process begins one while `holder` works on it."""

    pk = models.CompositePrimaryKey("session_id", "number")
    session = session_key()
    number = models.BigIntegerField()
    started_seq = models.BigIntegerField()
    started_at = models.DateTimeField()
    holder = IdField(null=True)
    fence = models.BigIntegerField(default=0)
    reason = IdField()
    from_seq = models.BigIntegerField()
    to_seq = models.BigIntegerField()
    from_position = models.BigIntegerField()
    kept_position = models.BigIntegerField()
    end_position = models.BigIntegerField()
    compacted_seq = models.BigIntegerField(null=True)
    compacted_at = models.DateTimeField(null=True)
    summary = DocumentField(null=True)
    content = DocumentField(null=True)
    truncated_seq = models.BigIntegerField(null=True)

    objects = CompactionQuerySet.as_manager()

    class Meta:
        constraints = [
            at_least(1, "helix_compaction_number", "number"),
            non_negative("helix_compaction_range", "from_position", "kept_position", "end_position"),
        ]

    def __str__(self) -> str:
        return f"{self.session_id} compaction {self.number}"
