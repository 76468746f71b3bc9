"""Values of a graph as JSON documents, and its messages as messages of the transcript.

What JSON can hold exactly is stored as it is, and messages of LangChain by their fields, so that people and
queries can read them. Everything else, and everything under a serializer of the user's own (one that
encrypts, say), is what that serializer makes of it.
"""

import base64
import zlib
from typing import Any

from helix_sessions import documents
from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.langgraph.messages import by_fields, from_fields, is_ours, is_plain, role_of
from helix_sessions.integrations.langgraph.trees import Find, NotATree, Said, from_tree, is_tree, tree_of
from helix_sessions.types import JSON

with needed_from("langgraph"):
    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

_WORTH_COMPRESSING = 512


class Codec:
    """Both ways, with one serializer."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde
        self.readable = type(serde) is JsonPlusSerializer

    def encode(self, value: Any) -> dict[str, JSON]:
        """A document for any value: `{"j": value}`, or its type and bytes."""
        if self.readable and is_plain(value):
            return {"j": value}
        kind, data = self.serde.dumps_typed(value)
        if len(data) >= _WORTH_COMPRESSING:
            packed = zlib.compress(data, 1)
            if len(packed) < 0.9 * len(data):
                return {"t": kind, "z": base64.b85encode(packed).decode()}
        return {"t": kind, "b": base64.b85encode(data).decode()}

    def compose(self, value: Any) -> dict[str, JSON]:
        """As `encode`, but with the messages in it by their fields: what `said` can be found in."""
        if self.readable and not is_plain(value):
            try:
                return {"s": tree_of(value)}
            except NotATree:
                pass
        return self.encode(value)

    def pack(self, document: dict[str, JSON], said: Said) -> dict[str, JSON]:
        """The shortest document for what is composed: without what was said, which is in the transcript."""
        if "s" not in document and ("j" not in document or not is_tree(document["j"])):
            return document
        tree = document["s"] if "s" in document else document["j"]
        referred = said.refer(tree)
        if referred != tree:
            return {"s": referred}
        if "s" not in document or len(documents.write(tree)) < _WORTH_COMPRESSING:
            return document
        whole = self.encode(self.decode(document))
        return min(document, whole, key=lambda each: len(documents.write(each)))

    def decode(self, document: Any, find: Find | None = None) -> Any:
        if "j" in document:
            return document["j"]
        if "s" in document:
            return from_tree(document["s"], find)
        if "z" in document:
            data = zlib.decompress(base64.b85decode(document["z"]))
        else:
            data = base64.b85decode(document["b"])
        return self.serde.loads_typed((document["t"], data))

    def encode_message(self, item: Any) -> dict[str, JSON]:
        """A message of the transcript for an item of the messages channel, whatever it is."""
        if self.readable and isinstance(item, BaseMessage):
            message = by_fields(item)
            if message is not None:
                return message
        elif self.readable and is_ours(item):
            return dict(item)
        return {"role": role_of(item), "item": self.encode(item)}

    def decode_message(self, message: dict[str, JSON]) -> Any:
        if "item" in message:
            return self.decode(message["item"])
        return from_fields(message) if "lc" in message else message
