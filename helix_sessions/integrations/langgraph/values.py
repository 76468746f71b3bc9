"""A graph's values as bytes and documents, and back. Nothing that goes in or comes out is kept here.

Values are what LangGraph's serializer makes of them. The items of lists, which people look at, are readable
documents where JSON brings them back exactly, and otherwise hold what the serializer made of them.
"""

import base64
import hashlib
import marshal
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.langgraph import large
from helix_sessions.types import JSON, ROLES

with needed_from("langgraph"):
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

FINGERPRINT = 16
"""Bytes of a fingerprint."""
DEEPEST = 100

_of_langgraph = JsonPlusSerializer()
_WITHOUT_REFERENCES = 2
"""The version of marshal's format in which equal values have equal bytes."""
_CLASSES: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
}
_NAMES = {kind: name for name, kind in _CLASSES.items()}
_ROLES = {"human": "user", "system": "system", "tool": "tool", "function": "tool"}
_ON_TOP = ("tool_calls", "tool_call_id")
"""Fields by which a transcript knows calls and results."""


@dataclass(frozen=True, slots=True)
class Serialized:
    """A value as its serializer wrote it."""

    type: str
    data: bytes


class Codec:
    """Both ways, with one serializer."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self._readable = type(serde) is JsonPlusSerializer
        """A serializer of the user's own may encrypt: nothing is stored that it has not written."""

    def dump(self, value: Any) -> Serialized:
        return Serialized(*self._serde.dumps_typed(value))

    def load(self, value: Serialized) -> Any:
        return self._serde.loads_typed((value.type, value.data))

    def dump_item(self, item: Any) -> dict[str, JSON]:
        """A document for an item of a list."""
        if self._readable and _is_plain(item):
            return {"json": item}
        written = self.dump(item)
        parts = large.split(written.type, written.data)
        if len(parts) > 1:
            return {"type": written.type, "parts": [large.to_json(part) for part in parts]}
        return {"type": written.type, "data": base64.b64encode(written.data).decode()}

    def load_item(self, document: dict[str, JSON]) -> Any:
        if "json" in document:
            return document["json"]
        if "parts" in document:
            data = b"".join(large.from_json(part) for part in document["parts"])
        else:
            data = base64.b64decode(document["data"])
        return self.load(Serialized(document["type"], data))

    def dump_message(self, item: Any) -> dict[str, JSON]:
        """A message of the transcript for an item of the messages channel, of any type."""
        if self._readable and isinstance(item, BaseMessage):
            message = _by_fields(item)
            if message is not None:
                return message
        elif self._readable and _is_of_transcript(item):
            return dict(item)
        return {"role": _role_of(item), "item": self.dump_item(item)}

    def load_message(self, message: dict[str, JSON]) -> Any:
        if "item" in message:
            return self.load_item(message["item"])
        return from_fields(message) if "lc" in message else message

    def fingerprint(self, item: Any) -> bytes:
        """By which an item is known again as long as nothing about it has changed."""
        kind = type(item)
        name = f"{kind.__module__}.{kind.__qualname__}|".encode()
        return hashlib.sha256(name + self._contents(item)).digest()[:FINGERPRINT]

    def _contents(self, item: Any) -> bytes:
        try:
            fields = (vars(item), item.__pydantic_extra__) if isinstance(item, BaseMessage) else item
            return marshal.dumps(fields, _WITHOUT_REFERENCES)
        except ValueError:  # something in it is not plain
            pass
        try:
            return _of_langgraph.dumps_typed(item)[1]
        except Exception:  # what only the serializer of the user's own can write
            return self._serde.dumps_typed(item)[1]


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether JSON brings the value back exactly, types included."""
    kind = type(value)
    if kind is str:
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    if kind is float:
        return math.isfinite(value)
    if kind is list and depth < DEEPEST:
        return all(_is_plain(item, depth + 1) for item in value)
    if kind is dict and depth < DEEPEST:
        return all(type(key) is str for key in value) and _is_plain([*value, *value.values()], depth)
    return kind in (int, bool, type(None))


@cache
def _defaults(kind: type[BaseMessage]) -> dict[str, Any]:
    return {
        name: field.get_default(call_default_factory=True)
        for name, field in kind.model_fields.items()
        if not field.is_required()
    }


def _by_fields(message: BaseMessage) -> dict[str, JSON] | None:
    """A message of LangChain by those of its fields that say something, if they make it again exactly."""
    name = _NAMES.get(type(message))
    if name is None:
        return None
    defaults = _defaults(type(message))
    fields = {
        field: value
        for field, value in {**vars(message), **(message.__pydantic_extra__ or {})}.items()
        if field not in defaults or defaults[field] != value
    }
    if not _is_plain(fields):
        return None
    content = fields.pop("content")
    on_top = {field: fields.pop(field) for field in _ON_TOP if field in fields}
    fields.pop("type", None)
    written = {"role": _role_of(message), "content": content, **on_top, "lc": {"type": name, **fields}}
    try:
        return written if _is_exactly(from_fields(written), message) else None
    except (TypeError, ValueError):  # its class takes these fields no more
        return None


def from_fields(message: dict[str, JSON]) -> BaseMessage:
    """A message of LangChain that the transcript has by its fields."""
    fields = dict(message["lc"])
    kind = _CLASSES[fields.pop("type")]
    on_top = {name: message[name] for name in _ON_TOP if name in message}
    return kind(content=message["content"], **on_top, **fields)


def _is_exactly(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, BaseMessage):
        return _is_exactly(
            [vars(one), one.__pydantic_extra__],
            [vars(other), other.__pydantic_extra__],
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_exactly(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_exactly, one, other))
    return bool(one == other)


def _is_of_transcript(item: Any) -> bool:
    """Whether an item is a message of the transcript already."""
    is_message = type(item) is dict and item.get("role") in ROLES
    return is_message and not {"lc", "item"} & item.keys() and _is_plain(item)


def _role_of(item: Any) -> str:
    if isinstance(item, BaseMessage):
        return _ROLES.get(item.type, "assistant" if item.type.lower().startswith("ai") else "user")
    role = item.get("role") if isinstance(item, dict) else None
    return role if role in ROLES else "user"
