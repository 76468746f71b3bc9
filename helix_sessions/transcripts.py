"""Tool calls and their results as transcripts hold them, whoever's format they are in.

Read are `tool_calls` (our flat ones and OpenAI's with a `function`), a `function_call` that a message has as
its `item`, `tool_use` blocks in the content of an assistant message, tool messages, and `tool_result` blocks
in the content of a user or tool message. Messages are whatever JSON a provider sent, so what does not look
like a call or a result is passed over.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, TypeGuard

ToolCall: TypeAlias = dict[str, Any]

INTERRUPTED = "Tool execution interrupted"


def open_tool_calls(messages: Iterable[Any]) -> list[ToolCall]:
    """The calls without a result, as `{"id", "name", "arguments"}`, in the order they were made.

    Some providers number calls anew in every turn, so an id may come again: a result answers the earliest
    open call of its id among the messages before it.
    """
    calls: dict[int, ToolCall] = {}
    open_by_id: defaultdict[str, deque[int]] = defaultdict(deque)
    made = 0
    for message in messages:
        for call in calls_in(message):
            calls[made] = call
            open_by_id[call["id"]].append(made)
            made += 1
        for call_id in results_in(message):
            if open_by_id[call_id]:
                del calls[open_by_id[call_id].popleft()]
    return list(calls.values())


def heal(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """The tool messages to add so that every call has a result: an error for each open one, in call order."""
    return [
        {
            "role": "tool",
            "tool_call_id": call["id"],
            "tool_name": call["name"],
            "content": INTERRUPTED,
            "is_error": True,
        }
        for call in open_tool_calls(messages)
    ]


def calls_in(message: Any) -> list[ToolCall]:
    """The tool calls one message makes, each once even when the message holds it in two formats."""
    if _role(message) != "assistant":
        return []
    listed = message.get("tool_calls")
    calls = (
        [_read_call(call) for call in listed if isinstance(call, dict)] if isinstance(listed, list) else []
    )
    item = message.get("item")
    if isinstance(item, dict) and item.get("type") == "function_call":
        calls.append(_read_call({"id": item.get("call_id"), "function": item}))
    known = {call["id"] for call in calls if _is_id(call["id"])}
    for block in _blocks(message, "tool_use"):
        if _is_id(block.get("id")) and block["id"] not in known:
            calls.append(_call(block, arguments=block.get("input", {})))
    return [call for call in calls if _is_id(call["id"])]


def results_in(message: Any) -> list[str]:
    """The ids of the calls one message answers."""
    role = _role(message)
    if role not in ("tool", "user"):
        return []
    answered = message.get("tool_call_id") if role == "tool" else None
    ids = [block.get("tool_use_id") for block in _blocks(message, "tool_result")]
    return [call_id for call_id in [answered, *(i for i in ids if i != answered)] if _is_id(call_id)]


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
    """What the text says in JSON; the text itself when it is none, or none that could be stored again."""
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
