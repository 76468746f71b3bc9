"""The definition of a session's agent, and its present state."""

from django.db import models

from helix_sessions.models.constraints import non_negative
from helix_sessions.models.fields import DocumentField, IdField


class AgentRecord(models.Model):
    """At most one per session. Without one the agent has a type only, and everything else is empty."""

    session = models.OneToOneField(
        "helix_sessions.Session",
        on_delete=models.DO_NOTHING,
        primary_key=True,
        related_name="+",
    )
    label = IdField(null=True)
    definition = DocumentField()
    system_prompt = DocumentField()
    model = DocumentField(null=True)
    budget = DocumentField(null=True)
    execution_count = models.BigIntegerField(default=0)
    execution = DocumentField(null=True)

    class Meta:
        constraints = [non_negative("helix_agent_executions", "execution_count")]

    def __str__(self) -> str:
        return f"{self.session_id} agent"
