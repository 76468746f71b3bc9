"""A session: one row, the lock of everything that belongs to it."""

from datetime import datetime
from typing import Self, cast

from django.conf import settings
from django.db import connections, models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from helix_sessions.models.constraints import at_least, non_negative, one_of
from helix_sessions.models.fields import DocumentField, IdField
from helix_sessions.types import SESSION_STATUSES, TERMINAL_STATUSES, TOMBSTONE, UNFINISHED_STATUSES


class SessionQuerySet(models.QuerySet["Session"]):
    """Sessions in the words of those who look for them."""

    def active(self) -> Self:
        """Open for work."""
        return self.filter(status="active")

    def terminal(self) -> Self:
        """Completed or failed."""
        return self.filter(status__in=TERMINAL_STATUSES)

    def unfinished(self) -> Self:
        """Not terminal."""
        return self.filter(status__in=UNFINISHED_STATUSES)

    def running(self) -> Self:
        """A run is under way."""
        return self.filter(run_id__isnull=False)

    def awaiting_client(self) -> Self:
        """A tool call waits for a person or a client."""
        return self.filter(awaiting_client=True)

    def waiting(self) -> Self:
        """Not ended, and waiting for a person, a client or a sub-session; those that wait longest first."""
        return self.filter(waiting_since__isnull=False).order_by("waiting_since", "session_id")

    def past_deadline(self, now: datetime) -> Self:
        """A tool call has waited for its answer longer than it may."""
        return self.filter(next_deadline__lte=now)

    def expired(self, now: datetime | None = None) -> Self:
        """Past their `expires_at` and not terminal."""
        return self.unfinished().filter(expires_at__lt=now or Now())

    def interrupted_by_request(self) -> Self:
        """Asked to stop, and nobody has taken the request yet."""
        return self.filter(interrupt_requested_at__isnull=False)

    def stuck(self, since: datetime) -> Self:
        """Running without progress since then."""
        return self.running().filter(updated_at__lt=since)

    def leased(self, now: datetime | None = None) -> Self:
        """Somebody holds a lease whose time is not over."""
        return self.filter(lease_expires_at__gt=now or Now())

    def unleased(self, now: datetime | None = None) -> Self:
        """Nobody drives them, or whoever did is out of time."""
        expired = models.Q(lease_expires_at__isnull=True) | models.Q(lease_expires_at__lte=now or Now())
        return self.filter(expired)

    def abandoned(self, now: datetime | None = None) -> Self:
        """A run is under way, and the lease of whoever drove it ran out."""
        return self.running().filter(lease_expires_at__lte=now or Now())

    def owned_by(self, owner_id: object) -> Self:
        return self.filter(owner_id=owner_id)

    def children_of(self, session_id: str) -> Self:
        return self.filter(parent_session_id=session_id)

    def tagged(self, tag: str) -> Self:
        return self.filter(tags__has=tag)

    def newest_first(self) -> Self:
        return self.order_by("-created_at", "-session_id")

    def ended_between(self, start: datetime, end: datetime) -> Self:
        """Entered a terminal status from `start` on and before `end`."""
        return self.terminal().filter(status_since__gte=start, status_since__lt=end)

    def id_begins_with(self, prefix: str) -> Self:
        """By a range of the key, which is an index scan on every engine."""
        found = self.filter(session_id__gte=prefix)
        above = next_prefix(prefix)
        return found if above is None else found.filter(session_id__lt=above)

    def agent_types(self, limit: int) -> list[str]:
        """The first kinds of agents by name, whatever the number of sessions: each costs one index probe."""
        connection = connections[self.db]
        with connection.cursor() as cursor:
            cursor.execute(AGENT_TYPES_SQL, [limit])
            return [row[0] for row in cursor.fetchall()]


_Sessions = models.Manager.from_queryset(SessionQuerySet)


class PresentSessions(_Sessions["Session"]):
    """The sessions that are there: all but those with a tombstone for a status."""

    def get_queryset(self) -> SessionQuerySet:
        """Without tombstones."""
        return cast(SessionQuerySet, super().get_queryset().exclude(status=TOMBSTONE))


AGENT_TYPES_SQL = """
WITH RECURSIVE kinds (agent_type) AS (
    SELECT min(agent_type) FROM helix_sessions_session
    UNION ALL
    SELECT (SELECT min(s.agent_type) FROM helix_sessions_session s WHERE s.agent_type > kinds.agent_type)
    FROM kinds WHERE kinds.agent_type IS NOT NULL
)
SELECT agent_type FROM kinds WHERE agent_type IS NOT NULL LIMIT %s
"""


def next_prefix(prefix: str) -> str | None:
    """The least text above every text that begins so, by code points; `None` if there is none."""
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1]) + 1
        if point == 0xD800:  # surrogates are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[: end - 1] + chr(point)
    return None


class Session(models.Model):
    """The container of a conversation. Written by the store only, under this row's lock."""

    session_id = IdField(primary_key=True)
    agent_type = IdField()
    stream_id = IdField(null=True)
    mode = IdField(max_length=16, default="standard")
    parent_session_id = IdField(null=True)
    root_session_id = IdField(null=True)
    forked_from_session_id = IdField(null=True)
    forked_from_checkpoint_id = IdField(max_length=512, null=True)

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    user_id = IdField(null=True)
    tags = DocumentField(default=list, searchable=True)
    metadata = DocumentField(default=dict, searchable=True)

    status = IdField(max_length=16, default="active")
    status_since = models.DateTimeField()
    error = DocumentField(null=True)
    failure_reason = models.TextField(null=True)  # noqa: DJ001
    output = DocumentField(null=True)
    interrupt_context = DocumentField(null=True)
    interrupt_reason = DocumentField(null=True)
    interrupt_requested_at = models.DateTimeField(null=True)

    pending_client_tool_calls = DocumentField(null=True)
    awaiting_client = models.BooleanField(default=False)
    next_deadline = models.DateTimeField(null=True)
    suspended_awaiting_children = DocumentField(null=True)
    awaiting_children = models.BooleanField(default=False)
    waiting_since = models.DateTimeField(null=True)
    suspended_step_id = IdField(null=True)
    suspension_context = DocumentField(null=True)
    completed_client_tool_calls = DocumentField(null=True)
    client_tool_call_ownership = DocumentField(null=True)
    tracing_context = DocumentField(null=True)
    location = DocumentField(null=True)
    workspace_ref = DocumentField(null=True, searchable=True)

    version = models.BigIntegerField(default=1)
    write_mark = models.BigIntegerField(null=True)
    head_seq = models.BigIntegerField(default=0)
    first_seq = models.BigIntegerField(default=1)
    message_count = models.BigIntegerField(default=0)
    open_calls = DocumentField(null=True)
    step_count = models.BigIntegerField(default=0)
    resume_count = models.BigIntegerField(default=0)
    turn_count = models.BigIntegerField(default=0)
    staged_count = models.BigIntegerField(default=0)
    pending_inputs = models.BigIntegerField(default=0)
    run_id = IdField(null=True)
    fence = models.BigIntegerField(default=0)
    lease_owner = IdField(null=True)
    lease_token = IdField(max_length=32, null=True)
    lease_expires_at = models.DateTimeField(null=True)
    checkpoint_id = IdField(max_length=512, null=True)
    checkpointed_at = models.DateTimeField(null=True)
    checkpoint_source = IdField(max_length=16, null=True)

    state_number = models.BigIntegerField(default=0)
    state_base = models.BigIntegerField(default=0)
    state_pinned = models.BigIntegerField(default=0)
    state_size = models.BigIntegerField(default=0)
    state_delta = models.BigIntegerField(default=0)
    state_digest = IdField(max_length=32, default="", digest=True)

    expires_at = models.DateTimeField(null=True)
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
            models.Index(
                fields=["status_since"],
                name="helix_session_ended_idx",
                condition=models.Q(status__in=TERMINAL_STATUSES),
            ),
        ]
        permissions = [
            ("view_all_sessions", _("Can see the sessions of every owner")),
            ("manage_all_sessions", _("Can change the sessions of every owner")),
            ("expire_session", _("Can expire sessions now")),
            ("set_expiry_session", _("Can set and extend the expiry of sessions")),
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
            ("answer_call_session", _("Can answer the tool calls of sessions")),
        ]

    def __str__(self) -> str:
        return str(self.session_id)
