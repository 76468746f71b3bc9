"""Fragments of messages: what their pieces mean, and several as one.

`{"text": …}` is a piece of the message's text, `{"thinking": …}` of its reasoning, and
`{"tool_call_id": …, "tool_name": …, "arguments": …}` of the arguments of a tool call.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from helix_sessions.types import Fragment

_TEXTS = ("text", "thinking")


def joined(fragments: Iterable[Fragment]) -> Iterator[Fragment]:
    """The same in fewer: pieces of one text, one after the other, become one, with the index of the last."""
    last: Fragment | None = None
    for fragment in fragments:
        data = _together(last, fragment)
        if last is not None and data is None:
            yield last
        last = fragment if data is None else replace(fragment, data=data)
    if last is not None:
        yield last


def _together(first: Fragment | None, second: Fragment) -> dict[str, Any] | None:
    """The data of two pieces that are one text; `None` if they are not."""
    if first is None or first.message_id != second.message_id:
        return None
    one, other = first.data, second.data
    if not (isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys()):
        return None
    for kind in _TEXTS:
        if one.keys() == {kind} and isinstance(one[kind], str) and isinstance(other[kind], str):
            return {kind: one[kind] + other[kind]}
    named = one.keys() == {"tool_call_id", "tool_name", "arguments"}
    if not named or (one["tool_call_id"], one["tool_name"]) != (other["tool_call_id"], other["tool_name"]):
        return None
    begun, more = one["arguments"], other["arguments"]
    return {**one, "arguments": begun + more} if isinstance(begun, str) and isinstance(more, str) else None
