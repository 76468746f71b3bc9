"""Who did what through the HTTP API."""

from datetime import datetime
from typing import Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from helix_sessions.models.fields import IdField


class AuditQuerySet(models.QuerySet["AuditEntry"]):
    """Filters of the audit trail."""

    def newest_first(self) -> Self:
        """In a total order."""
        return self.order_by("-at", "-entry_id")

    def before(self, moment: datetime) -> Self:
        """Entries from before that time."""
        return self.filter(at__lt=moment)


class AuditEntry(models.Model):
    """A request that changed something, or was refused: who, what, to which session, how it ended, and when.
    No content. It outlives the session and the user it names."""

    entry_id = models.UUIDField(primary_key=True)
    at = models.DateTimeField()
    actor = IdField(null=True)
    session_id = IdField(null=True)
    action = IdField()
    status = models.PositiveSmallIntegerField()
    code = IdField(max_length=64, null=True)
    address = IdField(max_length=64, null=True)
    request_id = IdField(max_length=128, null=True)

    objects = AuditQuerySet.as_manager()

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit entries")
        indexes = [
            models.Index(fields=["-at"], name="helix_audit_at_idx"),
            models.Index(fields=["actor", "-at"], name="helix_audit_actor_idx"),
            models.Index(fields=["session_id", "-at"], name="helix_audit_session_idx"),
            models.Index(fields=["action", "-at"], name="helix_audit_action_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor} {self.action} {self.session_id}"
