"""Decisions about the session as a whole."""

from dataclasses import dataclass

from helix_sessions.values.agents import AgentSession


@dataclass(frozen=True, slots=True)
class ResumeSession:
    """Make the session active, regardless of its status."""

    def execute_on(self, session: AgentSession) -> AgentSession:
        return session.with_status("active")


@dataclass(frozen=True, slots=True)
class SuspendSession:
    """Suspend the session. It keeps everything it has."""

    def execute_on(self, session: AgentSession) -> AgentSession:
        return session.with_status("suspended")


@dataclass(frozen=True, slots=True)
class ClearSession:
    """Empty the transcript and forget the last execution. The log keeps what was said."""

    def execute_on(self, session: AgentSession) -> AgentSession:
        return session.with_state(messages=(), execution=None)
