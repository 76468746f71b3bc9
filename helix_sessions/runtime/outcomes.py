"""What a turn came to, as an agent says it and as the store takes it."""

from collections.abc import Mapping
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput
from helix_sessions.types import TurnOutcome
from helix_sessions.writes import parse_writes


def checked(value: Any) -> TurnOutcome:
    """What an agent returned, in the form the store takes; anything else is the agent's error."""
    outcome = value
    if isinstance(value, Mapping) and "message" in value:
        outcome = TurnOutcome(**value)
    if not isinstance(outcome, TurnOutcome):
        raise InvalidInput(f"run_turn must return a TurnOutcome, not {type(value).__name__}.")
    message = outcome.message
    if isinstance(message, str):
        message = {"role": "assistant", "content": message}
    if message is None:
        if outcome.error is None:
            raise InvalidInput("A TurnOutcome needs a message, or an error.")
    elif not isinstance(message, Mapping) or message.get("role") != "assistant":
        raise InvalidInput("The message of a TurnOutcome must be one of the assistant.")
    else:
        message = dict(message)
    if outcome.error is not None and not isinstance(outcome.error, str):
        raise InvalidInput("The error of a TurnOutcome must be a string.")
    writes = parse_writes(outcome.writes) if outcome.writes else ()
    documents.dump([message, outcome.usage, outcome.output, outcome.error, writes])
    return TurnOutcome(
        message, writes=writes, usage=outcome.usage, output=outcome.output, error=outcome.error
    )


def added(one: Any, other: Any) -> Any:
    """The usage of several turns: numbers are added, anything else is the last."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return {**one, **{name: added(one.get(name), value) for name, value in other.items()}}
    if _is_number(one) and _is_number(other):
        return one + other
    return one if other is None else other


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
