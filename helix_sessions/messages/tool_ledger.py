"""The ledger of tool calls: which calls messages make, which have a result, and what result closes a call.

Every reader of calls and results walks here, for every format: `tool_calls` (flat, or OpenAI's with a
`function`), a `function_call` that a message has as its `item`, `tool_use` blocks in the content of an
assistant message, tool messages, and `tool_result` blocks in the content of a user or tool message. A message
is any JSON a provider sent, so what does not look like a call or a result is skipped.

Some providers number calls anew in every turn, so an id may come again. A result answers the earliest open
call of its id among the messages before it.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeGuard, TypeVar

T = TypeVar("T")

ToolCall: TypeAlias = dict[str, Any]
"""`{"id", "name", "arguments"}`; `edited` is true where the arguments are not those of the message."""

FINISH_TOOLS = ("__finish__",)
"""Tools whose call is the agent's last word: its arguments are the output, and no tool is executed."""

FINISHED = "Finished"

INTERRUPTED = "Tool execution interrupted"
STOPPED = "The tool was stopped, because the session was interrupted."
NOT_EXECUTED = "The tool was not executed, because the activity ended."
EXPIRED = "The deadline for an answer has passed."
DENIED = "The call was denied."
CHILD_FAILED = "The sub-agent failed."
EDITED = "The approver of this call has changed its arguments. It was executed with:"

_CONTENT_KEYS = {
    "tool_called": ("arguments", "input", "content"),
    "tool_responded": ("result", "content", "output"),
    "tool_error": ("error", "content", "message"),
}
"""Where the data of a tool event has its content; the first key that is there counts."""

TOOL_EVENTS = tuple(_CONTENT_KEYS)


# Reading


def calls_in(message: Any) -> list[ToolCall]:
    """The tool calls of one message, each once even when the message has it in two formats."""
    if _role(message) != "assistant":
        return []
    listed = message.get("tool_calls")
    calls = (
        [_read_call(call) for call in listed if isinstance(call, dict)] if isinstance(listed, list) else []
    )
    item = message.get("item")
    if isinstance(item, dict) and item.get("type") == "function_call":
        calls.append(_read_call({"id": item.get("call_id"), "function": item}))
    ids = {call["id"] for call in calls if _is_id(call["id"])}
    for block in _blocks(message, "tool_use"):
        if _is_id(block.get("id")) and block["id"] not in ids:
            calls.append(_call(block, arguments=block.get("input", {})))
    return [call for call in calls if _is_id(call["id"])]


def without_calls(content: Any) -> Any:
    """The content of an assistant message without its `tool_use` blocks."""
    if not isinstance(content, list):
        return content
    return [block for block in content if not (isinstance(block, dict) and block.get("type") == "tool_use")]


def results_in(message: Any) -> list[str]:
    """The ids of the calls that one message answers."""
    role = _role(message)
    if role not in ("tool", "user"):
        return []
    own = message.get("tool_call_id") if role == "tool" else None
    ids = [block.get("tool_use_id") for block in _blocks(message, "tool_result")]
    return [call_id for call_id in [own, *(i for i in ids if i != own)] if _is_id(call_id)]


def may_call_or_answer(role: str, text: str) -> bool:
    """Whether a message may have calls or results, judged by its JSON text: most are not worth parsing."""
    if role == "assistant":
        return '"tool_' in text
    return role == "tool" or (role == "user" and '"tool_result"' in text)


def logged_call(data: Any) -> ToolCall | None:
    """The call that a `tool_called` event logs, or whose end the other `TOOL_EVENTS` log."""
    call_id = data.get("tool_call_id") if isinstance(data, dict) else None
    if not _is_id(call_id):
        return None
    name = data.get("tool_name") or data.get("name")
    return _call({"id": call_id, "name": name}, arguments=data.get("arguments", data.get("input")))


def logged_content(event_type: str, data: Any) -> Any:
    """The arguments, the result or the error of a tool event; without these, its data but the call's id."""
    if not isinstance(data, dict):
        return data
    for key in _CONTENT_KEYS[event_type]:
        if key in data:
            return data[key]
    return {key: value for key, value in data.items() if key != "tool_call_id"}


# Following


class OpenCalls(Generic[T]):
    """What a walk keeps of each call that has no result yet, in the order of the calls."""

    def __init__(self) -> None:
        self._entries: dict[int, T] = {}
        self._numbers: dict[str, deque[int]] = {}
        self._opened = 0

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, call_id: str) -> bool:
        return bool(self._numbers.get(call_id))

    def open(self, call_id: str, entry: T) -> None:
        """A call is made."""
        self._entries[self._opened] = entry
        self._numbers.setdefault(call_id, deque()).append(self._opened)
        self._opened += 1

    def close(self, call_id: str) -> T | None:
        """A result came: the entry of the earliest open call of this id, `None` if none is open."""
        numbers = self._numbers.get(call_id)
        return self._entries.pop(numbers.popleft()) if numbers else None

    def follow(self, message: Any, entry_of: Callable[[int, ToolCall], T]) -> list[str]:
        """Open what a message calls, close what it answers; the ids of results that no open call has.

        `entry_of` makes the entry of a call out of its place in the message and the call.
        """
        for place, call in enumerate(calls_in(message)):
            self.open(call["id"], entry_of(place, call))
        unmatched = []
        for call_id in results_in(message):
            if call_id in self:
                self.close(call_id)
            else:
                unmatched.append(call_id)
        return unmatched


def open_tool_calls(messages: Iterable[Any]) -> list[ToolCall]:
    """The calls without a result, as `{"id", "name", "arguments"}`, in the order of the calls."""
    calls: OpenCalls[ToolCall] = OpenCalls()
    for message in messages:
        calls.follow(message, lambda _, call: call)
    return list(calls)


class OpenCall(NamedTuple):
    """A call without a result, and where it is: the position of its message, and its place in there."""

    id: str
    name: str
    position: int
    place: int


def follow_open_calls(calls: Iterable[OpenCall], messages: Iterable[tuple[int, Any]]) -> list[OpenCall]:
    """What is open after messages, each with its position, where `calls` were open before them."""
    ledger: OpenCalls[OpenCall] = OpenCalls()
    for call in calls:
        ledger.open(call.id, call)
    for position, message in messages:
        ledger.follow(message, _at(position))
    return list(ledger)


def reopened_calls(
    removed: Iterable[tuple[int, Any]],
    kept_backwards: Iterable[tuple[int, Any]],
    still_open: Collection[OpenCall],
) -> Iterator[OpenCall]:
    """The calls in kept messages that had their result in the removed ones.

    The kept messages come last first, and no more of them are read than needed. `still_open` are calls in
    them that are open anyway.
    """
    after: OpenCalls[None] = OpenCalls()
    wanted: Counter[str] = Counter()
    for _, message in removed:
        wanted.update(after.follow(message, lambda *_: None))
    if not wanted:
        return
    passed = {(call.position, call.place) for call in still_open}
    answered: Counter[str] = Counter()
    for position, message in kept_backwards:
        answered.update(results_in(message))
        for place, call in reversed(list(enumerate(calls_in(message)))):
            call_id = call["id"]
            if (position, place) in passed:
                continue
            if answered[call_id]:
                answered[call_id] -= 1
            elif wanted[call_id]:
                wanted[call_id] -= 1
                yield _at(position)(place, call)
        if not +wanted:
            return


def _at(position: int) -> Callable[[int, ToolCall], OpenCall]:
    return lambda place, call: OpenCall(call["id"], call["name"], position, place)


# Closing


def tool_message(call: Mapping[str, Any], content: Any, *, is_error: bool = False) -> dict[str, Any]:
    """The result of a call (its `id` and `name`) as the transcript has it. Of a call that is `edited` the
    content says with which `arguments` it was executed, because its message has others."""
    if call.get("edited"):
        content = _with_arguments(content, call["arguments"])
    message = {"role": "tool", "tool_call_id": call["id"], "tool_name": call["name"], "content": content}
    return {**message, "is_error": True} if is_error else message


def _with_arguments(content: Any, arguments: Any) -> Any:
    note = f"{EDITED} {json.dumps(arguments, ensure_ascii=False)}"
    if isinstance(content, str):
        return f"{note}\n\n{content}"
    if isinstance(content, list) and all(isinstance(block, dict) and "type" in block for block in content):
        return [{"type": "text", "text": note}, *content]
    return {"note": note, "result": content}


def tool_event(call: Mapping[str, Any], **data: Any) -> dict[str, Any]:
    """The data of a tool event of a call."""
    return {"tool_call_id": call["id"], "tool_name": call["name"], **data}


def closing_message(call: Mapping[str, Any], finish_tools: Collection[str] = FINISH_TOOLS) -> dict[str, Any]:
    """The result of a call that gets no other: an error, except for the call of a finish tool."""
    if call["name"] in finish_tools:
        return tool_message(call, FINISHED)
    return tool_message(call, INTERRUPTED, is_error=True)


def heal(messages: Iterable[Any], finish_tools: Collection[str] = FINISH_TOOLS) -> list[dict[str, Any]]:
    """The tool messages to add so that every call has a result, in the order of the calls.

    An open call gets an error for a result. A call of one of the `finish_tools` had nothing to execute, and
    gets a result that is no error.
    """
    return [closing_message(call, finish_tools) for call in open_tool_calls(messages)]


def _read_call(call: dict[str, Any]) -> ToolCall:
    function = call.get("function")
    if not isinstance(function, dict):
        return _call(call, arguments=call.get("arguments", call.get("args", {})))
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _parsed(arguments)
    return _call({"id": call.get("id"), "name": function.get("name")}, arguments=arguments)


def _call(source: dict[str, Any], *, arguments: Any) -> ToolCall:
    name = source.get("name")
    return {"id": source.get("id"), "name": name if isinstance(name, str) else "", "arguments": arguments}


def _parsed(text: str) -> Any:
    """The value of a JSON text; the text itself if it is no JSON, or JSON that cannot be stored again."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return text
    return value


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _blocks(message: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == kind:
                yield block


def _is_id(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value != ""
