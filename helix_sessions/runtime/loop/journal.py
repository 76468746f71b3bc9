"""Where a run is written down as it happens. The loop decides; a journal keeps.

There are two: one that commits every step of a session that is driven (`DurableJournal`), and one that
collects what an action comes to, which is saved at its end (`CollectedJournal`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from helix_sessions.messages.tool_ledger import ToolCall
from helix_sessions.runtime import telemetry
from helix_sessions.runtime.budgets import Spent
from helix_sessions.runtime.turn_context import TurnContext
from helix_sessions.store.driving.boundaries import Ending, Next, Outcome, Step
from helix_sessions.store.driving.turn_log import Settled
from helix_sessions.store.engine.spending import Standings
from helix_sessions.types import PendingCall, Run, Spawn
from helix_sessions.values.agents import AgentDefinition, Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCalls:
    """Calls of an earlier step that are executed before the model is asked: they were approved, or a process
    that is gone left them and they may be repeated."""

    calls: Sequence[ToolCall] = ()
    tries: dict[str, int] = field(default_factory=dict)
    """How often each was made before."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a run has come."""

    turns: int = 0
    usage: Any = None


class Waits(Exception):
    """The next attempt comes later, by whichever driver; the session was given back."""


class OverSpent(Exception):
    """Nothing is left of these limits of spending, so the model is not asked."""

    def __init__(self, limits: Standings) -> None:
        super().__init__()
        self.limits = limits


class Journal(Protocol):
    """What the loop asks of where it writes."""

    run: Run
    progress: Progress
    open_calls: OpenCalls
    names_models: bool
    """Whether messages say which model they are of."""
    longest_wait: float
    """Seconds after which a failed call of the model is not made again."""

    @property
    def failed_attempts(self) -> int:
        """How often the call of the model that is due has failed before."""

    @property
    def definition(self) -> AgentDefinition:
        """The agent of the session as it is defined now."""

    def spent(self) -> Spent:
        """What the session has used in this activity."""

    def reached(self, budget: Budget | None) -> str | None:
        """The limit of the budget, or of one above it, that was reached, if one was."""

    def overspent(self, usage: Any = None) -> Standings:
        """The limits of spending of which nothing is left, with this usage, as far as it is known here."""

    async def start(self, number: int) -> TurnContext:
        """Begin a turn; `number` 0 is for the open calls. `OverSpent` if nothing is left for it."""

    async def say(self, turn: TurnContext, step: Step, calls: Sequence[ToolCall]) -> None:
        """Log calls before they are executed, with the message that makes them."""

    def settle(self, turn: TurnContext, settled: Settled) -> None:
        """Log how a call ended."""

    def log_again(self, turn: TurnContext, call: ToolCall, attempt: int, error: str) -> None:
        """Log that a call is made again."""

    def key_of(self, turn: TurnContext, call: ToolCall) -> str:
        """What tells the call from every other."""

    async def commit(self, step: Step, following: Next) -> Outcome:
        """Commit a step, and decide what follows."""

    async def end(self, ending: Ending, step: Step | None = None) -> Outcome:
        """End the run."""

    async def suspend(
        self, step: Step, pending: Sequence[PendingCall], spawns: Sequence[tuple[ToolCall, Spawn]], kind: str
    ) -> Outcome:
        """Let the session wait for others."""

    async def refusals(self, spawns: Sequence[tuple[ToolCall, Spawn]]) -> dict[str, str]:
        """The reasons why calls cannot be given to sub-agents, by call id."""

    async def call_failed(self, turn: TurnContext, attempt: int, error: Any, wait: float) -> None:
        """Log that the model could not be asked, and wait; or raise `Waits`."""

    async def makes_smaller(self, error: Exception) -> bool:
        """Whether the context was too large, and is smaller now."""

    def span(self) -> telemetry.AgentSpan:
        """A span around the run."""

    def check(self) -> None:
        """Raise if the session is no longer driven here."""

    @property
    def leaves(self) -> bool:
        """Whether another worker is to go on at the next boundary."""
