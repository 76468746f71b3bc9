"""Values of a graph as JSON documents, and its messages as messages of the transcript.

What JSON can hold exactly is stored as it is, and messages of LangChain by their fields, so that people and
queries can read them. Everything else, and everything under a serializer of the user's own (one that
encrypts, say), is what that serializer makes of it.
"""

import base64
import math
import zlib
from copy import deepcopy
from functools import cache
from typing import Any

from helix_sessions.integrations.extras import needed_from
from helix_sessions.types import JSON, ROLES

with needed_from("langgraph"):
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

CLASSES: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
}
_NAMES = {kind: name for name, kind in CLASSES.items()}
_ROLE_OF_TYPE = {"human": "user", "system": "system", "tool": "tool", "function": "tool"}
_ON_TOP = ("tool_calls", "tool_call_id")
"""Fields by which a transcript knows calls and results."""

_ATOMS = (str, int, float, bool, type(None))
_WORTH_COMPRESSING = 512
_DEEPEST = 100


class Codec:
    """Both ways, with one serializer."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde
        self.readable = type(serde) is JsonPlusSerializer

    def encode(self, value: Any) -> JSON:
        """A document for any value: `{"j": value}`, or its type and bytes."""
        if self.readable and is_plain(value):
            return {"j": value}
        kind, data = self.serde.dumps_typed(value)
        if len(data) >= _WORTH_COMPRESSING:
            packed = zlib.compress(data, 1)
            if len(packed) < 0.9 * len(data):
                return {"t": kind, "z": base64.b85encode(packed).decode()}
        return {"t": kind, "b": base64.b85encode(data).decode()}

    def decode(self, document: Any) -> Any:
        if "j" in document:
            return document["j"]
        if "z" in document:
            data = zlib.decompress(base64.b85decode(document["z"]))
        else:
            data = base64.b85decode(document["b"])
        return self.serde.loads_typed((document["t"], data))

    def encode_message(self, item: Any) -> dict[str, JSON]:
        """A message of the transcript for an item of the messages channel, whatever it is."""
        if self.readable and isinstance(item, BaseMessage):
            message = _by_fields(item)
            if message is not None:
                return message
        elif self.readable and _is_ours(item):
            return dict(item)
        return {"role": _role_of(item), "item": self.encode(item)}

    def decode_message(self, message: dict[str, JSON]) -> Any:
        if "item" in message:
            return self.decode(message["item"])
        return _from_fields(message) if "lc" in message else message


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether JSON brings the value back exactly, types included."""
    kind = type(value)
    if kind is str:
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    if kind is float:
        return math.isfinite(value)
    if kind in _ATOMS:
        return True
    if depth > _DEEPEST:
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
    if type(item) is not type(other):
        return False
    try:
        return bool((vars(item) if isinstance(item, BaseMessage) else item) == mark)
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


def _by_fields(message: BaseMessage) -> dict[str, JSON] | None:
    """A message of LangChain by its fields, if it can be made again from them."""
    name = _NAMES.get(type(message))
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
        "role": _role_of(message),
        "content": content,
        **on_top,
        "lc": {"type": name, **{field: value for field, value in fields.items() if field != "type"}},
    }
    try:
        same = _from_fields(written) == message
    except ValueError:
        same = False
    return written if same else None


def _from_fields(message: dict[str, JSON]) -> BaseMessage:
    fields = dict(message["lc"])
    kind = CLASSES[fields.pop("type")]
    on_top = {name: message[name] for name in _ON_TOP if name in message}
    return kind(content=message["content"], **on_top, **fields)


def _is_ours(item: Any) -> bool:
    return (
        type(item) is dict
        and item.get("role") in ROLES
        and "lc" not in item
        and "item" not in item
        and is_plain(item)
    )


def _role_of(item: Any) -> str:
    if isinstance(item, BaseMessage):
        return _ROLE_OF_TYPE.get(item.type, "assistant" if item.type.lower().startswith("ai") else "user")
    role = item.get("role") if isinstance(item, dict) else None
    return role if role in ROLES else "user"
