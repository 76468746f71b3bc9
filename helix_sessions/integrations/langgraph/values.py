"""A graph's values as bytes and documents, and back. Nothing that goes in or comes out is kept here.

Values are what LangGraph's serializer makes of them. The items of lists, which people look at, are readable
documents where JSON brings them back exactly, and otherwise hold what the serializer made of them.
"""

import base64
import hashlib
import marshal
import zlib
from dataclasses import dataclass
from typing import Any

from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.langgraph.messages import (
    by_fields,
    from_fields,
    is_of_transcript,
    is_plain,
    role_of,
)
from helix_sessions.types import JSON

with needed_from("langgraph"):
    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

FINGERPRINT = 16
"""Bytes of a fingerprint."""

_of_langgraph = JsonPlusSerializer()
_PLAIN = (str, int, float, bool, type(None), list, dict)
_WITHOUT_REFERENCES = 2
"""The version of marshal's format in which equal values have equal bytes."""


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
        if self._readable and is_plain(item):
            return {"json": item}
        written = self.dump(item)
        return {"type": written.type, "data": base64.b64encode(written.data).decode()}

    def load_item(self, document: dict[str, JSON]) -> Any:
        if "json" in document:
            return document["json"]
        return self._load_first_form(document) if "type" not in document else self.load(serialized(document))

    def dump_message(self, item: Any) -> dict[str, JSON]:
        """A message of the transcript for an item of the messages channel, whatever that is."""
        if self._readable and isinstance(item, BaseMessage):
            message = by_fields(item)
            if message is not None:
                return message
        elif self._readable and is_of_transcript(item):
            return dict(item)
        return {"role": role_of(item), "item": self.dump_item(item)}

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
            if isinstance(item, BaseMessage):
                return marshal.dumps((vars(item), item.__pydantic_extra__), _WITHOUT_REFERENCES)
            if type(item) in _PLAIN:
                return marshal.dumps(item, _WITHOUT_REFERENCES)
        except ValueError:  # something in it is not plain
            pass
        try:
            return _of_langgraph.dumps_typed(item)[1]
        except Exception:  # what only the serializer of the user's own can write
            return self._serde.dumps_typed(item)[1]

    def _load_first_form(self, document: dict[str, JSON]) -> Any:
        return document["j"] if "j" in document else self.load(serialized_first_form(document))


def serialized(document: dict[str, JSON]) -> Serialized:
    return Serialized(document["type"], base64.b64decode(document["data"]))


def serialized_first_form(document: dict[str, JSON]) -> Serialized:
    """As the first stored form has it: `t` and `b`, or `z` if it was compressed."""
    if "z" in document:
        return Serialized(document["t"], zlib.decompress(base64.b85decode(document["z"])))
    return Serialized(document["t"], base64.b85decode(document["b"]))
