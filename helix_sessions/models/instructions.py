"""Instructions for agents that operators write, with every earlier version."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from helix_sessions.models.constraints import at_least
from helix_sessions.models.fields import IdField


class Instructions(models.Model):
    """The current instructions of an agent type. The store writes them, with a revision each time."""

    agent_type = IdField(_("agent type"), primary_key=True)
    text = models.TextField(_("text"))
    number = models.BigIntegerField(_("revision"))
    updated_at = models.DateTimeField(_("updated at"))

    class Meta:
        verbose_name = _("instructions")
        verbose_name_plural = _("instructions")
        constraints = [at_least(1, "helix_instructions_number", "number")]

    def __str__(self) -> str:
        return str(self.agent_type)


class InstructionsRevision(models.Model):
    """A version of the instructions of an agent type; without a text they were withdrawn."""

    pk = models.CompositePrimaryKey("agent_type", "number")
    agent_type = IdField()
    number = models.BigIntegerField()
    text = models.TextField(null=True)  # noqa: DJ001
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.agent_type} {self.number}"
