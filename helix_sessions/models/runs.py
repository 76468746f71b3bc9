"""Executions of a session."""

from typing import Self

from django.db import models

from helix_sessions.models.constraints import non_negative, one_of, session_key
from helix_sessions.models.fields import DocumentField, IdField
from helix_sessions.types import RUN_STATUSES


class RunQuerySet(models.QuerySet["Run"]):
    def running(self) -> Self:
        return self.filter(status="running")

    def newest_first(self) -> Self:
        return self.order_by("-turn")


class Run(models.Model):
    """One `execute` or `resume` turn. At most one of a session is running."""

    pk = models.CompositePrimaryKey("session_id", "run_id")
    session = session_key()
    run_id = IdField()
    turn = models.BigIntegerField()
    status = IdField(max_length=32, default="running")
    step_count = models.BigIntegerField(default=0)
    start_sequence = models.BigIntegerField()
    end_sequence = models.BigIntegerField(null=True)
    output = DocumentField(null=True)
    error = DocumentField(null=True)
    error_fingerprint = IdField(max_length=32, null=True)
    usage = DocumentField(null=True, searchable=True)
    metadata = DocumentField(default=dict)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        constraints = [
            one_of("status", RUN_STATUSES, "helix_run_status"),
            non_negative("helix_run_counters", "turn", "step_count", "start_sequence"),
            models.UniqueConstraint(fields=["session", "turn"], name="helix_run_turn"),
            models.UniqueConstraint(
                fields=["session"], condition=models.Q(status="running"), name="helix_run_one_running"
            ),
        ]

        indexes = [
            models.Index(
                fields=["error_fingerprint", "session"],
                name="helix_run_error_idx",
                condition=models.Q(error_fingerprint__isnull=False),
            ),
            # How much is done, how fast and how well, as of now: written once, with the end of a run.
            models.Index(
                fields=["ended_at", "status"],
                name="helix_run_ended_idx",
                condition=models.Q(ended_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.session_id} run {self.turn}"


class RunTally(models.Model):
    """How many runs ended in a quarter of an hour that is over. Kept by workers, so that the console counts
    what is not over yet and adds the rest; time zones differ by quarters of an hour."""

    slot = models.DateTimeField(primary_key=True)
    """Where the quarter begins."""
    ended = models.BigIntegerField()
    failed = models.BigIntegerField()

    class Meta:
        constraints = [non_negative("helix_run_tally_counts", "ended", "failed")]

    def __str__(self) -> str:
        return f"{self.slot:%Y-%m-%d %H:%M}"
