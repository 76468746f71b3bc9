"""A session: one row, the lock of everything that belongs to it."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Cast, Coalesce
from django.utils.translation import gettext_lazy as _

from helix_sessions.models.columns import column
from helix_sessions.models.constraints import at_least, non_negative, one_of
from helix_sessions.models.databases import OwnerKey, forget_owner
from helix_sessions.models.fields import DocumentField, IdField
from helix_sessions.models.session_querysets import PresentSessions, SessionQuerySet
from helix_sessions.types import SESSION_STATUSES, TERMINAL_STATUSES, TOMBSTONE, UNFINISHED_STATUSES


class Session(models.Model):
    """The container of a conversation. Written by the store only, under this row's lock.

    A column's line here says all there is to say about it: `column` adds what the store does with it beyond
    storing it. What a caller sees of the row is what `SessionState` has a field for, by the same name.
    """

    session_id = IdField(primary_key=True)
    agent_type = column(IdField(), branched=True)
    stream_id = IdField(null=True)
    mode = column(IdField(max_length=16, default="standard"), branched=True)
    parent_session_id = IdField(null=True)
    root_session_id = IdField(null=True)
    forked_from_session_id = IdField(null=True)
    forked_from_checkpoint_id = IdField(max_length=512, null=True)

    owner = column(
        OwnerKey(settings.AUTH_USER_MODEL, on_delete=forget_owner, null=True, db_index=False),
        branched=True,
    )
    user_id = column(IdField(null=True), saved=True, branched=True)
    tags = column(DocumentField(default=list, searchable=True), saved=True, branched=True)
    metadata = column(DocumentField(default=dict, searchable=True), saved=True, branched=True)

    status = column(IdField(max_length=16, default="active"), saved=True)
    status_since = column(models.DateTimeField(), read="never")
    error = column(DocumentField(null=True), saved=True)
    error_fingerprint = column(IdField(max_length=32, null=True))
    failure_reason = column(models.TextField(null=True), saved=True)
    output = column(DocumentField(null=True), read="on request", saved=True)
    interrupt_context = column(DocumentField(null=True), read="on request", saved=True)
    interrupt_reason = DocumentField(null=True)
    interrupt_requested_at = models.DateTimeField(null=True)

    pending_client_tool_calls = column(DocumentField(null=True), read="on request", saved=True, is_map=True)
    awaiting_client = models.BooleanField(default=False)
    next_deadline = models.DateTimeField(null=True)
    suspended_awaiting_children = column(
        DocumentField(null=True), read="on request", saved=True, is_map=True, names_sessions=True
    )
    awaiting_children = models.BooleanField(default=False)
    waiting_since = models.DateTimeField(null=True)
    suspended_step_id = column(IdField(null=True), saved=True)
    suspension_context = column(DocumentField(null=True), read="on request", saved=True)
    completed_client_tool_calls = column(DocumentField(null=True), read="on request", saved=True, is_map=True)
    client_tool_call_ownership = column(
        DocumentField(null=True), read="on request", saved=True, is_map=True, names_sessions=True
    )
    tracing_context = column(DocumentField(null=True), read="on request", saved=True)
    location = column(DocumentField(null=True), read="on request", saved=True, branched=True)
    workspace_ref = column(DocumentField(null=True, searchable=True), read="on request", saved=True)

    version = models.BigIntegerField(default=1)
    write_mark = models.BigIntegerField(null=True)
    head_seq = models.BigIntegerField(default=0)
    first_seq = models.BigIntegerField(default=1)
    message_count = models.BigIntegerField(default=0)
    open_calls = column(DocumentField(null=True), composed=True)
    step_count = column(models.BigIntegerField(default=0), saved=True)
    resume_count = models.BigIntegerField(default=0)
    turn_count = models.BigIntegerField(default=0)
    staged_count = models.BigIntegerField(default=0)
    pending_inputs = models.BigIntegerField(default=0)
    run_id = IdField(null=True)
    runnable_at = models.DateTimeField(null=True)
    deferred = models.BooleanField(default=False, db_default=False)
    """Whether `runnable_at` was ahead when it was set. When it has come, the next claim lets the session
    queue with those of its owner."""
    priority = models.SmallIntegerField(default=0, db_default=0)
    """That of the work it has to do now; at rest, its own."""
    base_priority = models.SmallIntegerField(default=0, db_default=0)
    run_requested = models.BooleanField(default=False, db_default=False)
    run_requested_at = models.DateTimeField(null=True)
    attempts = models.BigIntegerField(default=0, db_default=0)
    retry_attempt = models.BigIntegerField(default=0, db_default=0)
    """The number of the attempt that comes next, while a call of the model that failed is to be tried again.
    0: nothing is."""
    last_agent_activity_at = models.DateTimeField(null=True)
    usage = DocumentField(null=True, searchable=True)
    has_blobs = column(models.BooleanField(null=True), imported=False)
    fence = models.BigIntegerField(default=0)
    lease_owner = column(IdField(null=True), imported=False)
    lease_token = column(IdField(max_length=32, null=True), imported=False)
    lease_expires_at = column(models.DateTimeField(null=True), imported=False)
    checkpoint_id = IdField(max_length=512, null=True)
    checkpointed_at = column(models.DateTimeField(null=True), read="never")
    checkpoint_source = column(IdField(max_length=16, null=True), read="never")

    state_number = models.BigIntegerField(default=0)
    state_base = models.BigIntegerField(default=0)
    state_pinned = models.BigIntegerField(default=0)
    state_size = models.BigIntegerField(default=0)
    state_delta = models.BigIntegerField(default=0)
    state_digest = IdField(max_length=32, default="", digest=True)

    expires_at = column(models.DateTimeField(null=True), saved=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = PresentSessions()
    with_tombstones = SessionQuerySet.as_manager()

    class Meta:
        verbose_name = _("session")
        verbose_name_plural = _("sessions")
        constraints = [
            one_of("status", (*SESSION_STATUSES, TOMBSTONE), "helix_session_status"),
            at_least(1, "helix_session_version", "version", "first_seq"),
            non_negative(
                "helix_session_counters",
                "head_seq",
                "message_count",
                "step_count",
                "resume_count",
                "turn_count",
                "staged_count",
                "pending_inputs",
                "attempts",
                "retry_attempt",
                "fence",
                "state_number",
                "state_base",
                "state_pinned",
                "state_size",
                "state_delta",
            ),
        ]
        # No index on a column that changes with each step: such updates stay within the page (HOT).
        indexes = [
            models.Index(fields=["-created_at", "-session_id"], name="helix_session_newest"),
            models.Index(fields=["status", "-created_at", "-session_id"], name="helix_session_status_idx"),
            models.Index(fields=["agent_type", "-created_at", "-session_id"], name="helix_session_agent_idx"),
            models.Index(fields=["owner", "-created_at", "-session_id"], name="helix_session_owner_idx"),
            models.Index(fields=["user_id", "-created_at", "-session_id"], name="helix_session_user_idx"),
            models.Index(
                fields=["parent_session_id", "-created_at", "-session_id"],
                name="helix_session_parent_idx",
                condition=models.Q(parent_session_id__isnull=False),
            ),
            models.Index(
                fields=["root_session_id"],
                name="helix_session_root_idx",
                condition=models.Q(root_session_id__isnull=False),
            ),
            models.Index(
                fields=["forked_from_session_id"],
                name="helix_session_fork_idx",
                condition=models.Q(forked_from_session_id__isnull=False),
            ),
            models.Index(
                fields=["expires_at", "session_id"],
                name="helix_session_expiry_idx",
                condition=models.Q(expires_at__isnull=False),
            ),
            models.Index(
                fields=["expires_at", "session_id"],
                name="helix_session_overdue_idx",
                condition=models.Q(expires_at__isnull=False, status__in=UNFINISHED_STATUSES),
            ),
            models.Index(
                fields=["-created_at", "-session_id"],
                name="helix_session_awaiting_idx",
                condition=models.Q(awaiting_client=True),
            ),
            models.Index(
                fields=["waiting_since", "session_id"],
                name="helix_session_waiting_idx",
                condition=models.Q(waiting_since__isnull=False),
            ),
            models.Index(
                fields=["next_deadline", "session_id"],
                name="helix_session_deadline_idx",
                condition=models.Q(next_deadline__isnull=False),
            ),
            models.Index(
                fields=["-created_at", "-session_id"],
                name="helix_session_running_idx",
                condition=models.Q(run_id__isnull=False),
            ),
            models.Index(
                fields=["session_id"],
                name="helix_session_interrupt_idx",
                condition=models.Q(interrupt_requested_at__isnull=False),
            ),
            # One probe finds the next session of an agent type, however many sessions there are.
            models.Index(
                fields=["agent_type", "runnable_at", "session_id"],
                name="helix_session_runnable_idx",
                condition=models.Q(runnable_at__isnull=False),
            ),
            # Owners take turns: one probe finds the next of them, one more its longest waiting session.
            models.Index(
                "agent_type",
                "priority",
                Coalesce(Cast("owner", models.TextField()), models.Value("")),
                "runnable_at",
                "session_id",
                name="helix_session_turn_idx",
                condition=models.Q(runnable_at__isnull=False, deferred=False),
            ),
            models.Index(
                fields=["runnable_at"],
                name="helix_session_deferred_idx",
                condition=models.Q(runnable_at__isnull=False, deferred=True),
            ),
            # What runs at once is counted: as many rows as there are leases.
            models.Index(
                fields=["agent_type", "session_id"],
                name="helix_session_leased_idx",
                condition=models.Q(lease_owner__isnull=False),
            ),
            models.Index(
                fields=["error_fingerprint", "session_id"],
                name="helix_session_error_idx",
                condition=models.Q(error_fingerprint__isnull=False),
            ),
            # The failures of some time by their cause, without a look at the rows.
            models.Index(
                fields=["status_since", "error_fingerprint", "agent_type"],
                name="helix_session_failures_idx",
                condition=models.Q(status="failed"),
            ),
            models.Index(
                fields=["status_since"],
                name="helix_session_ended_idx",
                condition=models.Q(status__in=TERMINAL_STATUSES),
            ),
        ]
        permissions = [
            ("view_all_sessions", _("Can see the sessions of every owner")),
            ("manage_all_sessions", _("Can change the sessions of every owner")),
            ("drive_session", _("Can drive their own sessions over HTTP, as a backend does")),
            ("drive_any_session", _("Can drive the sessions of every owner over HTTP")),
            ("expire_session", _("Can expire sessions now")),
            ("set_expiry_session", _("Can set and extend the expiry of sessions")),
            ("run_session", _("Can have sessions run")),
            ("resume_session", _("Can resume paused and interrupted sessions")),
            ("retry_session", _("Can have the failed runs of sessions tried again")),
            ("change_model_and_retry_session", _("Can have sessions tried again with another model")),
            ("rewind_session", _("Can rewind sessions to a checkpoint")),
            ("replay_session", _("Can replay sessions as branches")),
            ("interrupt_session", _("Can interrupt sessions")),
            ("reactivate_session", _("Can make paused and interrupted sessions active again")),
            ("fail_session", _("Can fail sessions")),
            ("branch_session", _("Can branch sessions")),
            ("suspend_session", _("Can suspend sessions")),
            ("fork_session", _("Can fork sessions")),
            ("clear_session", _("Can clear the transcripts of sessions")),
            ("change_model_session", _("Can change the models of sessions")),
            ("change_budget_session", _("Can change the budgets of sessions")),
            ("compact_session", _("Can have sessions summarized for the model")),
            ("discard_staging_session", _("Can discard the staged writes of sessions")),
            ("export_session", _("Can export sessions, secrets included")),
            ("approve_call_session", _("Can approve the tool calls of sessions")),
            ("deny_call_session", _("Can deny the tool calls of sessions")),
            ("approve_calls_session", _("Can approve the waiting calls of many sessions")),
            ("deny_calls_session", _("Can deny the waiting calls of many sessions")),
            ("answer_call_session", _("Can answer the tool calls of sessions")),
        ]

    def __str__(self) -> str:
        return str(self.session_id)
