"""What agents and tools return, in one shape."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import HelixSessionsError, InvalidInput
from helix_sessions.store.engine import inputs
from helix_sessions.transcripts import ToolCall
from helix_sessions.writes import parse_writes

MOST_OF_AN_ERROR = 8 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One step of an agent."""

    messages: tuple[Mapping[str, Any], ...] = ()
    writes: Iterable[Any] = ()
    usage: Any = None
    output: Any = None
    error: str | None = None


def answer_of(value: Any) -> Answer:
    """A `TurnOutcome`, a message, several, a string that the assistant said, or nothing."""
    if value is None:
        return Answer()
    if isinstance(value, str):
        return Answer(messages=({"role": "assistant", "content": value},))
    if isinstance(value, Mapping):
        return Answer(messages=(_message(value),))
    if isinstance(value, list | tuple):
        return Answer(messages=tuple(_message(message) for message in value))
    if not hasattr(value, "message"):
        raise InvalidInput(f"An agent returned a {type(value).__name__}, which is no answer.")
    said = value.message
    error = getattr(value, "error", None)
    return Answer(
        messages=answer_of(said).messages,
        writes=getattr(value, "writes", ()) or (),
        usage=getattr(value, "usage", None),
        output=getattr(value, "output", None),
        error=None if error is None else str(error),
    )


def result_of(call: ToolCall, outcome: Any) -> tuple[dict[str, Any], list[Any]]:
    """The tool message for what a tool returned or raised, and its writes."""
    try:
        if isinstance(outcome, Exception):
            raise outcome
        has_writes = hasattr(outcome, "content") and hasattr(outcome, "writes")
        content = outcome.content if has_writes else outcome
        writes = parse_writes(outcome.writes) if has_writes else []
        return tool_message(call, documents.load(documents.dump(content))), writes
    except Exception as error:
        return tool_message(call, storable(words(error)), is_error=True), []


def tool_message(call: ToolCall, content: Any, *, is_error: bool = False) -> dict[str, Any]:
    """The result of a call as the transcript has it."""
    message = {"role": "tool", "tool_call_id": call["id"], "tool_name": call["name"], "content": content}
    return {**message, "is_error": True} if is_error else message


def words(error: Exception) -> str:
    """What went wrong, for a model or a person: our own errors are sentences."""
    if isinstance(error, HelixSessionsError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def storable(text: str) -> str:
    """The words of an error as they may be stored: short, and in characters that any encoding carries."""
    return text[:MOST_OF_AN_ERROR].encode("utf-8", "replace").decode()


def _message(value: Any) -> Mapping[str, Any]:
    _, text = inputs.message(value)
    message: Mapping[str, Any] = documents.load(text)
    return message
