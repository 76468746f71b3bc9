"""Code of the application's own at the stages of a load, an action and a save."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from helix_sessions.exceptions import InvalidInput
from helix_sessions.values.agents import AgentSession, value_of

STAGES: Final = ("after_load", "after_action", "before_create", "after_create", "before_save", "after_save")


@dataclass(frozen=True, slots=True)
class Hook:
    """Called with the session at a stage; goes on with the session it returns.

    Hooks of a higher priority come first, those of one priority in the order they are given in.
    """

    stage: str
    callable: Callable[[AgentSession], AgentSession]
    priority: int = 0

    def __post_init__(self) -> None:
        if self.stage not in STAGES:
            raise InvalidInput(f"The stage of a hook must be one of {', '.join(STAGES)}.")
        if not callable(self.callable):
            raise InvalidInput("A hook needs a callable.")


class Hooks:
    """All hooks of a runtime, in the order they are called in."""

    def __init__(self, hooks: Iterable[Hook]) -> None:
        given = [value_of(Hook, hook) for hook in hooks]
        ordered = sorted(given, key=lambda hook: -hook.priority)
        self._stages = {stage: [hook.callable for hook in ordered if hook.stage == stage] for stage in STAGES}

    def run(self, stage: str, session: AgentSession) -> AgentSession:
        """The session as the hooks of a stage leave it."""
        for hook in self._stages[stage]:
            session = hook(session)
            if not isinstance(session, AgentSession):
                raise InvalidInput(f"A hook must return an AgentSession, not a {type(session).__name__}.")
        return session
