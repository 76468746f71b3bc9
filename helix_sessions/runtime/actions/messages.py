"""Saying something to an agent."""

from dataclasses import dataclass
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput
from helix_sessions.runtime.actions.base import Desk, StagedAction, Stages
from helix_sessions.runtime.executions import execution_of
from helix_sessions.store.engine import inputs
from helix_sessions.types import Message
from helix_sessions.values.agents import AgentSession, Execution


@dataclass(frozen=True, slots=True)
class SendMessage(StagedAction):
    """Store what a user said, then let the agent answer.

    The message is saved before the agent is called, so neither a crash nor a conflict loses it, and no lock
    is held while the model answers. What the agent came to is the second save. An agent that fails leaves
    an execution that says so; the status of the session is nobody's business here.
    """

    message: str | Message
    """A string that a user said, or a message."""
    agent: Any
    """An object with `run_turn(turn)`, or a callable that takes the session; sync or async."""

    def __post_init__(self) -> None:
        if self.message is None:
            raise InvalidInput("There is no message to send.")
        inputs.optional_turn_message(self.message)
        if not callable(getattr(self.agent, "run_turn", self.agent)):
            raise InvalidInput("An agent has a run_turn, or is a callable that takes the session.")

    def stages(self, session: AgentSession, desk: Desk) -> Stages[AgentSession]:
        """The message, then the outcome."""
        said = self.message if not isinstance(self.message, str) else _by_user(self.message)
        state = session.state
        asked = session.with_messages(*desk.healing(session), documents.load(documents.dump(dict(said))))
        begun = asked.with_state(execution_count=state.execution_count + 1, execution=Execution("running"))
        return (yield from execution_of(self.agent, desk.save(begun), desk))


def _by_user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
