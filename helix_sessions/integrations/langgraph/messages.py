"""Messages of LangChain by their fields, as messages of the transcript."""

import math
from functools import cache
from typing import Any

from helix_sessions.integrations.extras import needed_from
from helix_sessions.types import JSON, ROLES

with needed_from("langgraph"):
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

CLASSES: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
}
NAMES = {kind: name for name, kind in CLASSES.items()}
_ROLE_OF_TYPE = {"human": "user", "system": "system", "tool": "tool", "function": "tool"}
_ON_TOP = ("tool_calls", "tool_call_id")
"""Fields by which a transcript knows calls and results."""

_ATOMS = (str, int, float, bool, type(None))
DEEPEST = 100


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether JSON brings the value back exactly, types included."""
    kind = type(value)
    if kind is str:
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    if kind is float:
        return math.isfinite(value)
    if kind in _ATOMS:
        return True
    if depth > DEEPEST:
        return False
    if kind is list:
        return all(is_plain(item, depth + 1) for item in value)
    if kind is dict:
        return all(type(key) is str and is_plain(key) for key in value) and all(
            is_plain(item, depth + 1) for item in value.values()
        )
    return False


@cache
def _defaults(kind: type[BaseMessage]) -> dict[str, Any]:
    fields = kind.model_fields.items()
    return {
        name: field.get_default(call_default_factory=True)
        for name, field in fields
        if not field.is_required()
    }


def by_fields(message: BaseMessage) -> dict[str, JSON] | None:
    """A message of LangChain by its fields, if it can be made again from them."""
    name = NAMES.get(type(message))
    if name is None:
        return None
    defaults = _defaults(type(message))
    fields = {
        field: value
        for field, value in {**vars(message), **(message.__pydantic_extra__ or {})}.items()
        if field not in defaults or defaults[field] != value
    }
    if not is_plain(fields):
        return None
    content = fields.pop("content")
    on_top = {field: fields.pop(field) for field in _ON_TOP if field in fields}
    written = {
        "role": role_of(message),
        "content": content,
        **on_top,
        "lc": {"type": name, **{field: value for field, value in fields.items() if field != "type"}},
    }
    try:
        return written if _is_exactly(from_fields(written), message) else None
    except (TypeError, ValueError):  # its class takes these fields no more
        return None


def _is_exactly(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, BaseMessage):
        return _is_exactly(vars(one), vars(other)) and _is_exactly(
            one.__pydantic_extra__, other.__pydantic_extra__
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_exactly(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_exactly, one, other))
    return bool(one == other)


def from_fields(message: dict[str, JSON]) -> BaseMessage:
    fields = dict(message["lc"])
    kind = CLASSES[fields.pop("type")]
    on_top = {name: message[name] for name in _ON_TOP if name in message}
    return kind(content=message["content"], **on_top, **fields)


def is_of_transcript(item: Any) -> bool:
    """Whether an item is a message of the transcript already."""
    return (
        type(item) is dict
        and item.get("role") in ROLES
        and "lc" not in item
        and "item" not in item
        and is_plain(item)
    )


def role_of(item: Any) -> str:
    if isinstance(item, BaseMessage):
        return _ROLE_OF_TYPE.get(item.type, "assistant" if item.type.lower().startswith("ai") else "user")
    role = item.get("role") if isinstance(item, dict) else None
    return role if role in ROLES else "user"
