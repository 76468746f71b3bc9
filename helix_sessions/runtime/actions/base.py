"""What an action is."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

from helix_sessions.messages.tool_ledger import heal
from helix_sessions.runtime.loop.io import IO, Inline, finished
from helix_sessions.store import SessionStore
from helix_sessions.types import JSON, UNSET, Unset
from helix_sessions.values.agents import AgentSession


class Action(Protocol):
    """Anything with this method. It returns the session as it should be saved, and saves nothing itself.

    A session with another id is a new one, made of the one that was loaded: it is stored, and the loaded
    one stays as it is.
    """

    def execute_on(self, session: AgentSession) -> AgentSession:
        """The session after the action."""
        ...


class ActionContext:
    """What an action that saves on its way has at hand: the store, a way to wait, and a way to save."""

    def __init__(self, store: SessionStore | None = None, io: IO | None = None) -> None:
        self.store = SessionStore() if store is None else store
        self.io: IO = Inline() if io is None else io
        self.writes: list[Any] = []
        """Writes to the custom state that are saved with the outcome."""
        self.output: JSON | Unset = UNSET
        """What came out of it, saved with the outcome."""

    def healing(self, session: AgentSession) -> list[dict[str, Any]]:
        """Results to add for unanswered tool calls."""
        return heal(session.state.messages)

    async def save(self, session: AgentSession) -> AgentSession:
        """The session as it is stored now; here, without a runtime, as it is."""
        return session


class StagedAction(ABC):
    """An action that saves more than once, or awaits something."""

    @abstractmethod
    async def stages(self, session: AgentSession, context: ActionContext) -> AgentSession:
        """Go through the action, saving with `context.save` on the way; what is returned is saved last."""

    def execute_on(self, session: AgentSession) -> AgentSession:
        """The session after the action, with nothing saved."""
        return finished(self.stages(session, ActionContext()))
