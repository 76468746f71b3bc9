"""An answer as a front end tells it: what is said, called and decided, out of a session's log and fragments.

The log has everything once it is committed, fragments have it earlier. A `Narrator` reads both and tells
each thing once, in order, in the words of no protocol.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from helix_sessions.messages import errors
from helix_sessions.messages.tool_ledger import calls_in, logged_content
from helix_sessions.types import EventRecord, Fragment

ANSWER_SUFFIX = ":answer"


def answer_id(user_message_id: str) -> str:
    """The id that front ends know the answer to a message by."""
    return f"{user_message_id}{ANSWER_SUFFIX}"


def message_id(message: Mapping[str, Any], position: int) -> str:
    """The id that front ends know a message of a user by: that of its input, or its place."""
    given = message.get("id")
    return given if isinstance(given, str) and given else f"message-{position}"


def said_id(turn_id: str | None, number: int, seq: int) -> str:
    """The id that front ends know a message of an agent by: that of its turn, with a number from the second
    of a turn on, or its event where there was no turn."""
    if turn_id is None:
        return f"event-{seq}"
    return turn_id if number == 1 else f"{turn_id}-{number}"


@dataclass(frozen=True, slots=True)
class StepBegan:
    """The model is asked."""


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of text, or of reasoning."""

    text: str
    message_id: str
    is_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class ArgumentsPiece:
    """A piece of the arguments of a call."""

    call_id: str
    name: str
    text: str
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class MessageEnded:
    """The model has said all of a message."""


@dataclass(frozen=True, slots=True)
class Called:
    """A tool is called."""

    call_id: str
    name: str
    arguments: Any
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """A call has its result."""

    call_id: str
    name: str
    content: Any
    is_error: bool = False
    is_denied: bool = False


@dataclass(frozen=True, slots=True)
class StepEnded:
    """The step is committed."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What was said of a message is void: the call of the model failed and is made again, or has ended."""

    attempt: int | None
    error: str
    retry_at: str | None


@dataclass(frozen=True, slots=True)
class Subagent:
    """A sub-agent began, or ended."""

    session_id: str
    agent_type: str | None
    call_id: str | None
    status: str
    output: Any = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Something for those who read along, such as the progress of a tool."""

    data: Any


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run has ended, or a sub-agent's has; what it waits for, or why it failed, is not in the log."""

    run_id: str | None
    status: str


Told: TypeAlias = (
    StepBegan
    | Said
    | ArgumentsPiece
    | MessageEnded
    | Called
    | Answered
    | StepEnded
    | Withdrawn
    | Subagent
    | Progress
    | RunEnded
)


@dataclass(slots=True)
class _Draft:
    """A message under way, as far as it was told."""

    turn_id: str | None = None
    fragments_id: str = ""
    message_id: str = ""
    texts: dict[bool, list[str]] = field(default_factory=lambda: {False: [], True: []})
    """By whether it is reasoning."""

    def said(self, is_reasoning: bool) -> str:
        return "".join(self.texts[is_reasoning])


class Narrator:
    """Tells one answer. Events and fragments come in the order of a subscription."""

    def __init__(self, input_id: str | None = None) -> None:
        """`input_id`: the answer begins when this input becomes a message; `None`: it has begun."""
        self._input_id = input_id
        self.has_begun = input_id is None
        self.is_cancelled = False
        self.calls: dict[str, str] = {}
        """The calls that were told, and the names of their tools."""
        self._answered: set[str] = set()
        self._denied: set[str] = set()
        self._agent_types: dict[str, str] = {}
        self._step_is_open = False
        self._draft = _Draft()
        self._turn: tuple[str | None, int] = (None, 0)
        """The turn that said the last message, and how many it has said."""
        self._withdrawn = ""

    def tell(self, item: EventRecord | Fragment) -> Iterator[Told]:
        """What an event or a fragment says."""
        if isinstance(item, Fragment):
            if self.has_begun:
                yield from self._fragment(item)
            return
        data = item.data if isinstance(item.data, dict) else {}
        if not self.has_begun:
            self._look_for_begin(item.type, data)
            return
        reader = _EVENTS.get(item.type)
        if reader is not None:
            yield from reader(self, item, data)

    def _look_for_begin(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "user_message" and data.get("id") == self._input_id:
            self.has_begun = True
        elif kind == "input_cancelled" and data.get("input_id") == self._input_id:
            self.is_cancelled = True

    def _begin_step(self) -> Iterator[Told]:
        if not self._step_is_open:
            self._step_is_open = True
            yield StepBegan()

    def _fragment(self, fragment: Fragment) -> Iterator[Told]:
        if fragment.message_id is None:
            yield Progress(fragment.data)
            return
        if fragment.message_id != self._draft.fragments_id:
            name = self._next_name(fragment.turn_id, 0)
            if self._withdrawn == name:
                name = f"{name}-{fragment.message_id}"  # what was withdrawn has the name
            self._draft = _Draft(fragment.turn_id, fragment.message_id, name)
        yield from self._begin_step()
        data = fragment.data if isinstance(fragment.data, dict) else {}
        for key, is_reasoning in (("text", False), ("thinking", True)):
            if isinstance(data.get(key), str) and data[key]:
                yield from self._say(data[key], is_reasoning)
        if isinstance(data.get("tool_call_id"), str):
            text = data.get("arguments")
            name = str(data.get("tool_name") or "")
            piece = text if isinstance(text, str) else ""
            yield ArgumentsPiece(data["tool_call_id"], name, piece, self._draft.message_id)

    def _next_name(self, turn_id: str | None, seq: int) -> str:
        said = self._turn[1] if turn_id == self._turn[0] else 0
        return said_id(turn_id, said + 1, seq)

    def _say(self, text: str, is_reasoning: bool) -> Iterator[Told]:
        self._draft.texts[is_reasoning].append(text)
        yield Said(text, self._draft.message_id, is_reasoning)

    def _assistant_message(self, event: EventRecord, data: dict[str, Any]) -> Iterator[Told]:
        yield from self._begin_step()
        if event.turn_id is None or event.turn_id != self._draft.turn_id:
            name = self._next_name(event.turn_id, event.seq)
            self._draft = _Draft(event.turn_id, message_id=name)
        for whole, is_reasoning in ((reasoning_of(data), True), (text_of(data), False)):
            said = self._draft.said(is_reasoning)
            if is_reasoning and self._draft.said(False):
                continue  # it comes before the text, or not at all
            if whole.startswith(said) and len(whole) > len(said):
                yield from self._say(whole[len(said) :], is_reasoning)
        yield MessageEnded()
        name, self._draft = self._draft.message_id, _Draft()
        self._turn = event.turn_id, 1 + (self._turn[1] if event.turn_id == self._turn[0] else 0)
        for call in calls_in(data):
            self.calls[call["id"]] = call["name"]
            yield Called(call["id"], call["name"], arguments_of(call), name)

    def _tool_ended(self, event: EventRecord, data: dict[str, Any]) -> Iterator[Told]:
        call_id = data.get("tool_call_id")
        if not isinstance(call_id, str) or call_id in self._answered:
            return
        self._answered.add(call_id)
        name = str(data.get("tool_name") or self.calls.get(call_id, ""))
        if event.type == "tool_message":
            content, is_error = data.get("content"), data.get("is_error") is True
        else:
            content, is_error = logged_content(event.type, data), event.type == "tool_error"
        yield Answered(call_id, name, content, is_error, is_denied=is_error and call_id in self._denied)

    def _tool_called(self, event: EventRecord, data: dict[str, Any]) -> Iterator[Told]:
        call_id = data.get("tool_call_id")
        if isinstance(call_id, str):
            self._answered.discard(call_id)
        yield from ()

    def _submitted(self, event: EventRecord, data: dict[str, Any]) -> Iterator[Told]:
        if data.get("answer") == "denied" and isinstance(data.get("tool_call_id"), str):
            self._denied.add(data["tool_call_id"])
        yield from ()

    def _turn_finished(self, event: EventRecord, data: dict[str, Any]) -> Iterator[Told]:
        if self._step_is_open:
            self._step_is_open = False
            yield StepEnded()

    def _call_failed(self, event: EventRecord, data: dict[str, Any]) -> Iterator[Told]:
        self._withdrawn = self._draft.message_id or self._withdrawn
        self._draft = _Draft()
        yield Withdrawn(data.get("attempt"), error_text(data.get("error")), data.get("retry_at"))

    def _spawned(self, event: EventRecord, data: dict[str, Any]) -> Iterator[Told]:
        child = str(data.get("sub_session_id"))
        self._agent_types[child] = str(data.get("agent_type"))
        yield Subagent(child, self._agent_types[child], data.get("parent_tool_call_id"), "running")

    def _child_ended(self, event: EventRecord, data: dict[str, Any]) -> Iterator[Told]:
        child = str(data.get("sub_session_id"))
        yield Subagent(
            child,
            self._agent_types.get(child),
            data.get("parent_tool_call_id"),
            str(data.get("status")),
            data.get("output"),
        )

    def _calls_waiting(self, event: EventRecord, data: dict[str, Any]) -> Iterator[Told]:
        if data.get("owner_session_id") != event.session_id:
            yield RunEnded(None, "suspended_child")

    def _run_finished(self, event: EventRecord, data: dict[str, Any]) -> Iterator[Told]:
        self._draft = _Draft()
        yield from self._turn_finished(event, data)
        run_id = data.get("run_id") or event.run_id
        yield RunEnded(run_id if isinstance(run_id, str) else None, str(data.get("status")))


_EVENTS = {
    "assistant_message": Narrator._assistant_message,
    "tool_called": Narrator._tool_called,
    "tool_responded": Narrator._tool_ended,
    "tool_error": Narrator._tool_ended,
    "tool_message": Narrator._tool_ended,
    "tool_result_submitted": Narrator._submitted,
    "turn_finished": Narrator._turn_finished,
    "model_call_failed": Narrator._call_failed,
    "subagent_spawned": Narrator._spawned,
    "subagent_result": Narrator._child_ended,
    "tool_calls_waiting": Narrator._calls_waiting,
    "run_finished": Narrator._run_finished,
}


def text_of(message: Mapping[str, Any]) -> str:
    """What a message says: its content, or the texts of its blocks."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_block_text(block) for block in content)
    return "" if content is None else json.dumps(content, ensure_ascii=False)


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, dict) and block.get("type") in ("text", "output_text", "input_text", None):
        text = block.get("text")
        return text if isinstance(text, str) else ""
    return ""


def reasoning_of(message: Mapping[str, Any]) -> str:
    """The readable reasoning of a message; what a provider keeps encrypted is not."""
    for key in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(message.get(key), str):
            return str(message[key])
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [
        block.get("thinking") or block.get("text") or ""
        for block in blocks
        if isinstance(block, dict) and block.get("type") in ("thinking", "reasoning")
    ]
    return "".join(text for text in texts if isinstance(text, str))


def arguments_of(call: Mapping[str, Any]) -> Any:
    """The arguments of a call as JSON; a text that is none stays one."""
    arguments = call.get("arguments")
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return json.loads(arguments) if arguments else {}
    except ValueError:
        return arguments


def error_text(error: Any) -> str:
    """What an error says to a person."""
    return errors.in_words(error) or "The agent failed."
