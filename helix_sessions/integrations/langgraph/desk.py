"""The desk, where the newest checkpoint of a namespace lies, with what the tasks after it wrote.

It is one note that is written again and again. When the next checkpoint comes, this one is filed, under a key
of its own and for good: the messages in its values and writes by their places in the transcript, in which
they have been said by now, and what only LangGraph looks at compressed.
"""

import base64
import zlib
from collections.abc import Sequence
from typing import Any

from helix_sessions import documents
from helix_sessions.integrations.langgraph import places
from helix_sessions.integrations.langgraph.codec import Codec
from helix_sessions.integrations.langgraph.trees import Said
from helix_sessions.types import Note

Document = dict[str, Any]

_READABLE = ("ns", "values")
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
"""What such a document is mostly made of. Never to be changed: what is stored is read with it."""


def name_of(document: Document) -> tuple[str, str]:
    """What a checkpoint is known by in its thread: its namespace and its id."""
    return document.get("ns", ""), document["id"]


def merged(wrote: Sequence[Document], more: Sequence[Document]) -> list[Document]:
    """What tasks wrote, in place of what they had written before."""
    return [*{task_of(one): one for one in (*wrote, *more)}.values()]


def task_of(wrote: Document) -> tuple[str, int | None]:
    """A task and, if what it wrote is special, the number of that."""
    first = wrote["writes"][0][0]
    return wrote["task"], first if first < 0 else None


def with_writes(document: Document, checkpoint: str, wrote: list[Document]) -> Document:
    """The newest checkpoint with more writes: its own, or those of one that will be put after them."""
    if document["id"] == checkpoint:
        return {**document, "wrote": merged(document.get("wrote", []), wrote)}
    early = document.get("early", {})
    return {**document, "early": {**early, checkpoint: merged(early.get(checkpoint, []), wrote)}}


def packed(codec: Codec, wrote: Document, said: Said) -> Document:
    writes = [[index, channel, codec.pack(value, said)] for index, channel, value in wrote["writes"]]
    return {**wrote, "writes": writes}


def filed(codec: Codec, document: Document, said: Said) -> Document:
    """A checkpoint as it is kept, once these messages were said."""
    values = {channel: codec.pack(value, said) for channel, value in document["values"].items()}
    rest = {name: value for name, value in document.items() if name not in (*_READABLE, "id", "early")}
    if "wrote" in rest:
        rest["wrote"] = [packed(codec, one, said) for one in rest["wrote"]]
    press = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=_WORDS)
    pressed = press.compress(documents.dump(rest).encode()) + press.flush()
    return {
        **{name: document[name] for name in _READABLE if name in document},
        "values": values,
        "z": base64.b64encode(pressed).decode(),
    }


def opened(note: Note) -> Document:
    """A checkpoint as it was put, filed or not."""
    document: Document = note.document
    if "z" not in document:
        return document
    rest = zlib.decompressobj(-15, zdict=_WORDS).decompress(base64.b64decode(document["z"]))
    kept = {name: document[name] for name in _READABLE if name in document}
    return {"id": places.checkpoint_of(note.key), **kept, **documents.load(rest.decode())}
