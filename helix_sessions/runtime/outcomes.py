"""What a turn came to, as an agent says it and as the loop takes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from helix_sessions.content import documents
from helix_sessions.exceptions import HelixSessionsError, InvalidInput
from helix_sessions.messages.tool_ledger import without_calls
from helix_sessions.messages.usage import added as added
from helix_sessions.store.engine import inputs
from helix_sessions.types import CallKind
from helix_sessions.writes import parse_writes

MOST_OF_AN_ERROR = 8 * 1024

APPROVAL: Final = "approval"
CLIENT_TOOL: Final = "client_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkOutcome:
    """What a framework's agent came to in a turn: a `TurnOutcome`, and what a framework decides itself."""

    message: Any
    usage: Any = None
    output: Any = None
    error: str | None = None
    error_code: str | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Who answers a call, where the framework says so of this very call: `approval` or `client_tool`."""
    schemas: Mapping[str, Any] = field(default_factory=dict)
    """The JSON Schemas that answers to calls must fit, where the framework gives them, by call id."""
    replies: Sequence[Mapping[str, Any]] = ()
    """What the agent itself answers to its message: the results of calls that are not executed, and messages
    for the model."""
    final: bool | None = None
    """Whether the run ends with this message, once its calls are executed and none failed; `None`: if it
    calls nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What a framework's tool came to: a `ToolResult`, and what frameworks decide by themselves."""

    content: Any = None
    writes: Sequence[Any] = ()
    is_error: bool = False
    native: Mapping[str, Any] | None = None
    """The framework's own form of the result, without its content: `message` of the tool message."""
    waits: CallKind | None = None
    """The tool did nothing yet: its call waits for an `approval`, or is a `client_tool`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one call of an agent came to, checked: all of it can be stored."""

    messages: tuple[dict[str, Any], ...] = ()
    writes: Sequence[Any] = ()
    usage: Any = None
    output: Any = None
    error: str | None = None
    error_code: str | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    schemas: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Results of its calls that the agent gives by itself, by call id."""
    follow_up: tuple[dict[str, Any], ...] = ()
    """What the model is told after the results."""
    final: bool | None = None

    @property
    def message(self) -> dict[str, Any] | None:
        """The last message, whose tool calls are executed."""
        return self.messages[-1] if self.messages else None


def read(value: Any, *, one_message: bool = True) -> Answer:
    """What an agent returned: a `TurnOutcome`, a dict of its fields, a message, or a string that the
    assistant said. With `one_message` it is the assistant's, and is there unless there is an error; without,
    there may be several, of anybody, or none."""
    if isinstance(value, Mapping) and "message" in value and "role" not in value:
        value = _Fields(value)
    if hasattr(value, "message"):
        said, error = value.message, getattr(value, "error", None)
        answer = Answer(
            messages=_messages(said),
            writes=getattr(value, "writes", ()) or (),
            usage=getattr(value, "usage", None),
            output=getattr(value, "output", None),
            error=error,
        )
    elif value is None and one_message:
        raise InvalidInput("run_turn must return a TurnOutcome, not None.")
    else:
        answer = Answer(messages=_messages(value))
    if one_message:
        _check_one_message(answer)
    if answer.error is not None and not isinstance(answer.error, str):
        raise InvalidInput("The error of a TurnOutcome must be a string.")
    writes = parse_writes(answer.writes) if answer.writes else ()
    documents.dump([answer.usage, answer.output, answer.error, writes])
    replies = [_message(reply) for reply in getattr(value, "replies", ())]
    return Answer(
        messages=answer.messages,
        writes=writes,
        usage=answer.usage,
        output=answer.output,
        error=None if answer.error is None else storable(answer.error),
        error_code=getattr(value, "error_code", None),
        kinds=getattr(value, "kinds", {}),
        schemas=getattr(value, "schemas", {}),
        results={reply["tool_call_id"]: reply for reply in replies if reply["role"] == "tool"},
        follow_up=tuple(reply for reply in replies if reply["role"] != "tool"),
        final=getattr(value, "final", None),
    )


def interrupted(answer: Answer, said_so_far: str) -> Answer:
    """What an agent returned because it was asked to stop: what it says, or had said so far, and no calls."""
    message = answer.message or {}
    content = without_calls(message.get("content")) or said_so_far
    kept = {"role": "assistant", "content": content, "interrupted": True}
    return Answer(messages=(kept,) if content else (), writes=answer.writes, usage=answer.usage)


class _Fields:
    """The fields of a `TurnOutcome`, given as a dict."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        unknown = set(fields) - {"message", "writes", "usage", "output", "error"}
        if unknown:
            raise InvalidInput(f"A TurnOutcome has no {sorted(map(str, unknown))[0]!r:.80}.")
        self.message: Any = None
        self.__dict__.update(fields)


def _messages(value: Any) -> tuple[dict[str, Any], ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        value = {"role": "assistant", "content": value}
    if isinstance(value, list | tuple):
        return tuple(_message(message) for message in value)
    if not isinstance(value, Mapping):
        raise InvalidInput(f"An agent returned a {type(value).__name__}, which is no answer.")
    return (_message(value),)


def _message(value: Any) -> dict[str, Any]:
    _, text = inputs.message(value)
    message: dict[str, Any] = documents.load(text)
    return message


def _check_one_message(answer: Answer) -> None:
    if not answer.messages and answer.error is None:
        raise InvalidInput("A TurnOutcome needs a message, or an error.")
    if len(answer.messages) > 1 or any(message.get("role") != "assistant" for message in answer.messages):
        raise InvalidInput("The message of a TurnOutcome must be one of the assistant.")


def words(error: BaseException) -> str:
    """What went wrong, for a model or a person: our own errors are sentences."""
    if isinstance(error, HelixSessionsError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def storable(text: str) -> str:
    """The words of an error as they may be stored: short, and in characters that any encoding carries."""
    return text[:MOST_OF_AN_ERROR].encode("utf-8", "replace").decode()
