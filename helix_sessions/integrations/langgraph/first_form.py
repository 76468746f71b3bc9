"""Reads what was stored before the form had a version, into the documents of today.

Its documents have short names. A checkpoint has `id`, `ns`, `parent`, `checkpoint`, `metadata`, `values`,
`held`, `wrote` and `early`; filed, all but `ns` and `values` is compressed under `z`. A value is `j` (JSON),
`t` with `b` or `z` (what the serializer wrote), `s` (JSON with messages in it), `m` with `d` (positions in
the transcript) or `n` (numbers of items).
"""

import base64
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import CheckpointNotFound
from helix_sessions.integrations.langgraph import keys
from helix_sessions.integrations.langgraph.documents import Items, Messages, StoredCheckpoint, Value, Write
from helix_sessions.integrations.langgraph.values import Codec, Serialized, from_fields
from helix_sessions.types import JSON, Note

Find = Callable[[int, str], dict[str, JSON]]
"""The message at a position of the transcript, if its text has this digest."""

_WORDS = (
    b'"branch:to:tools","agent":{"branch:to:agent":"~__pregel_push, "~__pregel_pull, __start__"},'
    b'"__pregel_tasks"{"counters_since_delta_snapshot":{},"run_id":"thread_id":"source":"update""source":"fork"'
    b'"writes":[[0,"messages",{"s":[["user",{"!c":["path":"~__pregel_pull, agent","wrote":[{"task":"'
    b'"writes":[[0,"messages",{"s":[{"!m":{"role":"assistant","content":{"!c":["lc":{"type":"ai"}}}]}]]}]'
    b'"held":{"messages":"1f1{"parent":"1f1","checkpoint":{"v":4,"ts":"2026-00+00:00","channel_versions":{'
    b'"__start__":"messages":"branch:to:"},"versions_seen":{"__input__":{},"__start__":{"__start__":'
    b'"},"updated_channels":["__start__","messages"]},"metadata":{"j":{"source":"input","step":'
    b'"metadata":{"j":{"source":"loop","step":1,"parents":{}}}'
)


def checkpoint_of(note: Note, codec: Codec, find: Find) -> StoredCheckpoint:
    """A checkpoint as it was put, filed or not."""
    document = note.document
    if "z" in document:
        rest = zlib.decompressobj(-15, zdict=_WORDS).decompress(base64.b64decode(document["z"]))
        document = {"id": keys.id_of_checkpoint(note.key), **document, **documents.load(rest.decode())}
    return StoredCheckpoint(
        id=document["id"],
        namespace=document.get("ns", ""),
        parent=document.get("parent"),
        checkpoint=codec.dump(document["checkpoint"]),
        metadata=_scalar(document["metadata"], codec, find),
        values={channel: _value(each, codec, find) for channel, each in document["values"].items()},
        held=document.get("held", {}),
        writes=_writes(document.get("wrote", ()), codec, find),
        run_id=note.run_id,
        latest=document["id"] if note.key.startswith(keys.HEADS) else "",
        early={name: _writes(wrote, codec, find) for name, wrote in document.get("early", {}).items()},
    )


def writes_of(note: Note, codec: Codec, find: Find) -> tuple[Write, ...]:
    """Writes that are kept apart from their checkpoint."""
    return _writes([note.document], codec, find)


def item(document: dict[str, JSON]) -> dict[str, JSON]:
    """The document of an item, in the form of today if it is of the first."""
    if "j" in document:
        return {"json": document["j"]}
    if "t" not in document:
        return document
    return {"type": document["t"], "data": base64.b64encode(_serialized(document).data).decode()}


def message(document: dict[str, JSON]) -> dict[str, JSON]:
    """A message of the transcript, likewise."""
    return {**document, "item": item(document["item"])} if "item" in document else document


def _writes(wrote: Iterable[dict[str, Any]], codec: Codec, find: Find) -> tuple[Write, ...]:
    """What tasks wrote; one whose messages were truncated has written nothing."""
    found: list[Write] = []
    for one in wrote:
        with suppress(CheckpointNotFound):
            task, path = one["task"], one.get("path", "")
            read = [(index, channel, _scalar(value, codec, find)) for index, channel, value in one["writes"]]
            found += [
                Write(task=task, path=path, index=index, channel=channel, value=value)
                for index, channel, value in read
            ]
    return tuple(found)


def _value(document: dict[str, Any], codec: Codec, find: Find) -> Value:
    if "m" in document:
        return Messages(tuple((first, end) for first, end in document["m"]), document["d"])
    if "n" in document:
        return Items(tuple((first, end) for first, end in document["n"]))
    return _scalar(document, codec, find)


def _scalar(document: dict[str, Any], codec: Codec, find: Find) -> Serialized:
    if "j" in document:
        return codec.dump(document["j"])
    return codec.dump(_from_tree(document["s"], find)) if "s" in document else _serialized(document)


def _serialized(document: dict[str, JSON]) -> Serialized:
    if "z" in document:
        return Serialized(document["t"], zlib.decompress(base64.b85decode(document["z"])))
    return Serialized(document["t"], base64.b85decode(document["b"]))


def _from_tree(tree: JSON, find: Find) -> Any:
    """JSON in which `!m` is a message and `!c` the content of one, which may be given by its position."""
    if isinstance(tree, list):
        return [_from_tree(item, find) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "!c" in tree:
        return find(*tree["!c"])["content"]
    if "!m" in tree:
        message = tree["!m"]
        return from_fields(find(*message) if isinstance(message, list) else _from_tree(message, find))
    return {name: _from_tree(item, find) for name, item in tree.items()}
