"""How the log tells of a turn: that it began, each call of its model, and how its tool calls ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs.runs import turn_id_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart:
    """A turn that is about to begin."""

    number: int
    model: Any = None
    attempt: int = 1
    """Of its model, counted from 1 over all processes that tried."""
    begun: bool = False
    """It is in the log already; only its model is asked again."""
    most_steers: int = 32
    """So many of the steers that wait begin it; the others begin the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How a tool call ended: its event, and what it wants written with the step."""

    call: Mapping[str, Any]
    kind: str
    data: Mapping[str, Any]
    writes: Sequence[Any] = ()


def start_turn(work: UnitOfWork, run_id: str, turn: TurnStart) -> None:
    """Log a turn, and the call of the model it begins with."""
    turn_id = turn_id_of(run_id, turn.number)
    data = {"turn": turn.number, "model": turn.model}
    if not turn.begun:
        work.event("turn_started", data, run_id=run_id, turn_id=turn_id)
    work.event("model_called", {**data, "attempt": turn.attempt}, run_id=run_id, turn_id=turn_id)
