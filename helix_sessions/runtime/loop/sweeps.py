"""What nobody attends to: inputs that wait, and runs whose owner is gone."""

from collections.abc import Collection
from dataclasses import dataclass

from helix_sessions.conf import conf
from helix_sessions.exceptions import NotConfigured
from helix_sessions.store import SessionStore
from helix_sessions.types import RECOVERIES

POLICIES = (*RECOVERIES, "leave")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattended:
    """A session to do something about."""

    session_id: str
    agent_type: str
    abandoned: bool
    """A run was left running."""
    policy: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """A look at the sessions of a store, of these agent types or all."""

    store: SessionStore
    agent_types: Collection[str] | None = None
    limit: int = 500

    def find(self) -> list[Unattended]:
        """Abandoned runs first, then inputs that wait."""
        rows = self.store.list_abandoned(agent_types=self.agent_types, limit=self.limit)
        abandoned = {row.session_id: recovery_policy(row.agent_type) for row in rows}
        found = [
            Unattended(
                session_id=row.session_id,
                agent_type=row.agent_type,
                abandoned=True,
                policy=abandoned[row.session_id],
            )
            for row in rows
            if abandoned[row.session_id] != "leave"
        ]
        return found + [each for each in self.find_inputs() if each.session_id not in abandoned]

    def find_inputs(self) -> list[Unattended]:
        """Inputs that wait."""
        rows = self.store.list_unattended(agent_types=self.agent_types, limit=self.limit)
        return [
            Unattended(session_id=row.session_id, agent_type=row.agent_type, abandoned=False, policy="wake")
            for row in rows
        ]


def recovery_policy(agent_type: str) -> str:
    """What `HELIX_SESSIONS["RECOVERY"]` says of a type of session."""
    policies = conf.RECOVERY
    policy = policies.get(agent_type, policies.get("*", "wake"))
    if policy not in POLICIES:
        raise NotConfigured(f"RECOVERY of {agent_type!r} must be one of {', '.join(POLICIES)}.")
    return str(policy)
