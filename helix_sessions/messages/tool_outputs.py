"""The results of tools inside messages, and how long ones are made shorter.

A result is the content of a tool message, or of a `tool_result` block in the content of a message; in the
forms of our adapters it is the `output` of an `item`, or the content of a `tool-return` part.
"""

import json
from collections.abc import Callable
from typing import Any, TypeGuard

SMALLEST_LIMIT = 200
"""A smaller limit counts as this one: the notice of the cut needs room."""

_MEDIA = frozenset(
    (
        *("image", "image_url", "input_image", "document", "file", "input_file"),
        *("audio", "input_audio", "video", "media"),
    )
)
"""Types of blocks whose data cannot be cut without being spoilt; models do not count it as text."""

_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def cut_output(content: Any, limit: int) -> Any:
    """The result of a tool in at most `limit` bytes of UTF-8: the beginning and the end of its text, with a
    notice of the cut between them. What fits is returned as it is, so cutting twice is cutting once.

    A text is measured as it is, any other JSON value as JSON, and becomes a text when it is cut. In a list
    with images or files these stay whole and are not counted; the texts beside them share the limit.
    """
    limit = max(limit, SMALLEST_LIMIT)
    if isinstance(content, list) and any(map(_is_media, content)):
        return _cut_blocks(content, limit)
    text = as_text(content)
    data = _encoded(text)
    return content if len(data) <= limit else _head_and_tail(data, limit)


def cut_outputs(message: Any, limit: int) -> Any:
    """The message with each of its results cut; the same object if none is too long."""
    return map_outputs(message, lambda content: cut_output(content, limit))


def map_outputs(message: Any, change: Callable[[Any], Any]) -> Any:
    """The message with `change` made to each result in it; the same object if nothing changes."""
    if not isinstance(message, dict):
        return message
    if _has_results(message.get("content")):
        return _map(message, "content", lambda blocks: _map_blocks(blocks, _is_result, change))
    if message.get("role") != "tool":
        return message
    if "content" in message:
        return _map(message, "content", change)
    message = _map(message, "item", lambda item: _map(item, "output", change))
    return _map(
        message,
        "message",
        lambda inner: _map(inner, "parts", lambda parts: _map_blocks(parts, _is_return, change)),
    )


def as_text(content: Any) -> str:
    """A text as it is, any other value as JSON."""
    return content if isinstance(content, str) else _write(content)


def _map(value: Any, key: str, change: Callable[[Any], Any]) -> Any:
    """The value with `change` made to what it has under a key."""
    if not isinstance(value, dict) or key not in value:
        return value
    changed = change(value[key])
    return value if changed is value[key] else {**value, key: changed}


def _map_blocks(blocks: Any, chosen: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    if not isinstance(blocks, list):
        return blocks
    changed = [_map(block, "content", change) if chosen(block) else block for block in blocks]
    return blocks if all(new is old for new, old in zip(changed, blocks, strict=True)) else changed


def _cut_blocks(blocks: list[Any], limit: int) -> list[Any]:
    """Cut each text to an equal share, where together they are too long."""
    texts = [block for block in blocks if not _is_media(block)]
    if sum(len(_encoded(_block_text(block))) for block in texts) <= limit:
        return blocks
    share = max(limit // len(texts), SMALLEST_LIMIT)
    return [block if _is_media(block) else _cut_block(block, share) for block in blocks]


def _cut_block(block: Any, limit: int) -> Any:
    text = _block_text(block)
    cut = cut_output(text, limit)
    if cut is text:
        return block
    if isinstance(block, dict) and isinstance(block.get("text"), str):
        return {**block, "text": cut}
    return {"type": "text", "text": cut}


def _block_text(block: Any) -> str:
    if isinstance(block, dict) and isinstance(block.get("text"), str):
        return str(block["text"])
    return as_text(block)


def _head_and_tail(data: bytes, limit: int) -> str:
    notice = f"\n\n[{len(data) - limit:,} of {len(data):,} bytes were cut here]\n\n"
    room = limit - len(notice) - len(str(limit))
    head, tail = _boundary(data, room - room // 2), _boundary(data, len(data) - room // 2, forward=True)
    notice = f"\n\n[{tail - head:,} of {len(data):,} bytes were cut here]\n\n"
    return _decoded(data[:head]) + notice + _decoded(data[tail:])


def _boundary(data: bytes, index: int, *, forward: bool = False) -> int:
    """The nearest place, at the index or on this side of it, where a character begins."""
    while 0 < index < len(data) and data[index] & 0xC0 == 0x80:
        index += 1 if forward else -1
    return index


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _has_results(content: Any) -> TypeGuard[list[Any]]:
    return isinstance(content, list) and any(map(_is_result, content))


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _is_return(part: Any) -> bool:
    return isinstance(part, dict) and part.get("part_kind") == "tool-return"


def _is_media(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _MEDIA
