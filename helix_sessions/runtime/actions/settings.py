"""What the agent of a session works with."""

from dataclasses import dataclass
from typing import Any

from helix_sessions.exceptions import InvalidInput
from helix_sessions.store.engine import inputs
from helix_sessions.values.agents import AgentSession, Budget, optional


@dataclass(frozen=True, slots=True)
class ChangeModel:
    """Another model, or `None` for whichever the agent takes by itself."""

    model: Any

    def execute_on(self, session: AgentSession) -> AgentSession:
        return session.with_state(model=self.model)


@dataclass(frozen=True, slots=True)
class ChangeBudget:
    """Other limits for the executions to come, or `None` for no limits."""

    budget: Budget | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", optional(Budget, self.budget))

    def execute_on(self, session: AgentSession) -> AgentSession:
        return session.with_state(budget=self.budget)


@dataclass(frozen=True, slots=True)
class ChangeSystemPrompt:
    """Another system prompt."""

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InvalidInput(f"A system prompt must be a string, not {type(self.text).__name__}.")

    def execute_on(self, session: AgentSession) -> AgentSession:
        return session.with_state(system_prompt=self.text)


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """One key of the metadata. `None` is a value like any other."""

    key: str
    value: Any

    def __post_init__(self) -> None:
        inputs.metadata({inputs.text(self.key, "A key of the metadata"): self.value})

    def execute_on(self, session: AgentSession) -> AgentSession:
        return session.with_metadata(self.key, self.value)
