"""Large contents of serialized values, apart from what is around them.

A graph writes a picture several times: in its input, in the writes of its nodes, in its channels. What is
around it differs, so only the content alone is the same attachment each time.
"""

import base64
import re

from helix_sessions.conf import conf
from helix_sessions.content import blobs, documents
from helix_sessions.types import JSON

_HEADS = re.compile(rb"[\xc6\xdb](....)|[\xc5\xda](..)", re.DOTALL)
"""What msgpack puts before long bytes and long texts: a mark and the length."""
_OF_BYTES = b"\xc5\xc6"

Large = bytes | str


def may_be_in(data: bytes) -> bool:
    """Whether bytes are so many that something in them may be large."""
    return blobs.is_on() and len(data) > conf.BLOB_THRESHOLD


def split(kind: str, data: bytes) -> list[Large]:
    """The parts of a value's bytes: every second one is a large content, a text if it has base64 in it. What
    looks like the head of one and is none does no harm: together the parts are the bytes again."""
    if not may_be_in(data):
        return [data]
    if kind != "msgpack":
        return [b"", bytes(data), b""]  # LangGraph gives bytearrays as they are
    parts: list[Large] = []
    start = at = 0
    while head := _HEADS.search(data, at):
        end = head.end() + int.from_bytes(head[1] or head[2])
        content = _large(data[head.end() : end], head[0][:1]) if end <= len(data) else None
        if content is None:
            at = head.start() + 1
        else:
            parts += [data[start : head.end()], content]
            start = at = end
    return [*parts, data[start:]]


def _large(content: bytes, mark: bytes) -> Large | None:
    if len(content) <= conf.BLOB_THRESHOLD:
        return None
    if mark in _OF_BYTES:
        return content
    try:
        text = content.decode()
    except ValueError:
        return None
    return text if blobs.inline_in(documents.write(text)) else None


def to_json(content: Large) -> JSON:
    if isinstance(content, str):
        return {"text": content}
    return {"base64": base64.b64encode(content).decode()}


def from_json(document: dict[str, str]) -> bytes:
    if "text" in document:
        return document["text"].encode()
    return base64.b64decode(document["base64"])
