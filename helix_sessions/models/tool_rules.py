"""Rules for tools: whose calls are executed, asked about, or denied."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from helix_sessions.models.constraints import one_of
from helix_sessions.models.databases import OwnerKey, go_with_owner
from helix_sessions.models.fields import DocumentField, IdField
from helix_sessions.types import TOOL_DECISIONS


class ToolRule(models.Model):
    """What becomes of calls of a tool: of one session, of an owner's, of an agent type's, or of all. Written
    by the store. The id is a digest of the selectors, so that equal ones are one row."""

    rule_id = IdField(primary_key=True, max_length=64)
    tool = IdField(_("tool"), help_text=_("A name, or the beginning of names and *."))
    decision = IdField(_("decision"), max_length=8)
    agent_type = IdField(_("agent type"), null=True, blank=True)
    session_id = IdField(_("session"), null=True, blank=True)
    owner = OwnerKey(
        settings.AUTH_USER_MODEL, verbose_name=_("owner"), on_delete=go_with_owner, null=True, blank=True
    )
    arguments = DocumentField(_("arguments"), null=True, blank=True, searchable=True)
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        verbose_name = _("tool rule")
        verbose_name_plural = _("tool rules")
        constraints = [one_of("decision", TOOL_DECISIONS, "helix_tool_rule_decision")]
        indexes = [
            models.Index(
                fields=["session_id"],
                name="helix_tool_rule_session_idx",
                condition=models.Q(session_id__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.decision} {self.tool}"
