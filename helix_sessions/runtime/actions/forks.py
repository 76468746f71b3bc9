"""Branching off."""

from dataclasses import dataclass, replace

from helix_sessions.store.agents.agent_sessions import fresh
from helix_sessions.store.engine import inputs
from helix_sessions.values.agents import AgentSession


@dataclass(frozen=True, slots=True)
class ForkSession:
    """A new session with this one for a parent: its messages, metadata, model and limits, but nothing
    executed yet. This one stays as it is."""

    new_id: str | None = None

    def __post_init__(self) -> None:
        inputs.optional_identifier(self.new_id, "The session id")

    def execute_on(self, session: AgentSession) -> AgentSession:
        state = replace(session.state, execution_count=0, execution=None)
        return fresh(self.new_id, session.definition, state, parent_id=session.session_id)
