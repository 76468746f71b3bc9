"""Messages of LangChain by their fields, as messages of the transcript."""

import math
from copy import deepcopy
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


def mark_of(item: Any) -> Any:
    """What an item is compared with later: nothing that somebody can change meanwhile."""
    if isinstance(item, _ATOMS):
        return item
    if isinstance(item, BaseMessage):
        return {
            name: value if isinstance(value, _ATOMS) else deepcopy(value)
            for name, value in vars(item).items()
        }
    return deepcopy(item)


def is_same(item: Any, other: Any, mark: Any) -> bool:
    """Whether an item still is the one that was marked."""
    return are_same([item], [other], [mark])


def are_same(items: list[Any], others: list[Any], marks: list[Any]) -> bool:
    """Whether all items still are the ones that were marked."""
    if [*map(type, items)] != [*map(type, others)]:
        return False
    try:
        return [vars(item) if isinstance(item, BaseMessage) else item for item in items] == marks
    except Exception:  # some values refuse to be compared
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
        same = from_fields(written) == message
    except ValueError:
        same = False
    return written if same else None


def from_fields(message: dict[str, JSON]) -> BaseMessage:
    fields = dict(message["lc"])
    kind = CLASSES[fields.pop("type")]
    on_top = {name: message[name] for name in _ON_TOP if name in message}
    return kind(content=message["content"], **on_top, **fields)


def is_ours(item: Any) -> bool:
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
