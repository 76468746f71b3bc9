"""The stored form of a thread's checkpoints: typed documents, and the notes they are kept in.

`docs/explanation/langgraph-threads.md` tells what is stored and why. It takes compression, and references to
what is in the transcript already, to keep a conversation in three times the text of its messages.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from helix_sessions.integrations.langgraph import keys
from helix_sessions.integrations.langgraph.packing import pack, unpack
from helix_sessions.integrations.langgraph.references import Part, Recent, Referring
from helix_sessions.integrations.langgraph.values import Serialized
from helix_sessions.types import JSON, Note

VERSION = 2
"""Of the form. The first had none; `first_form.py` reads it."""

Span = tuple[int, int]
"""Numbers from the first up to the second, without it."""


@dataclass(frozen=True, slots=True)
class Messages:
    """A list by the positions of its messages in the transcript."""

    spans: tuple[Span, ...]
    digest: str
    """Of the text of the last one, so that another transcript is not taken for this one."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list by the numbers of its items, which are notes."""

    spans: tuple[Span, ...]


Scalar = Serialized | Referring
Value = Serialized | Referring | Messages | Items


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What a task wrote to a channel. A negative index is that of a special channel, such as errors."""

    task: str
    path: str
    index: int
    channel: str
    value: Scalar

    @property
    def special(self) -> int | None:
        return self.index if self.index < 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A checkpoint as it is stored."""

    id: str
    namespace: str
    parent: str | None
    checkpoint: Scalar
    """LangGraph's own, without its id and its values."""
    metadata: Scalar
    values: Mapping[str, Value]
    held: Mapping[str, str]
    """Channels that did not change since, and the checkpoint that holds their value."""
    writes: tuple[Write, ...] = ()
    run_id: str | None = None

    latest: str = ""
    """Of a head: the checkpoint that was put last. Mostly its own."""
    early: Mapping[str, tuple[Write, ...]] = field(default_factory=dict)
    """Of a head: writes of checkpoints that have not been put yet."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Of a head: the number that the next item of a list will have."""

    @property
    def channels(self) -> set[str]:
        return {*self.values, *self.held}

    @property
    def name(self) -> tuple[str, str]:
        return self.namespace, self.id


def merged(writes: Iterable[Write], more: Iterable[Write]) -> tuple[Write, ...]:
    """Writes with more of them. What a task has written stays, but for special channels."""
    found = {(write.task, write.index): write for write in writes}
    for write in more:
        if write.special is not None or (write.task, write.index) not in found:
            found[write.task, write.index] = write
    return tuple(found.values())


def filed(checkpoint: StoredCheckpoint, recent: Recent) -> StoredCheckpoint:
    """A checkpoint as it is kept once another has followed it: the texts of its values and writes that are in
    the transcript by now are read there."""
    return replace(
        checkpoint,
        values={channel: _referring(value, recent) for channel, value in checkpoint.values.items()},
        writes=filed_writes(checkpoint.writes, recent),
        latest="",
        early={},
        numbers={},
    )


def filed_writes(writes: Iterable[Write], recent: Recent) -> tuple[Write, ...]:
    return tuple(replace(write, value=_referring(write.value, recent)) for write in writes)


def _referring(value: Any, recent: Recent) -> Any:
    return recent.refer(value) if isinstance(value, Serialized) else value


def note_of(checkpoint: StoredCheckpoint) -> dict[str, JSON]:
    """The document of the note that keeps a checkpoint. A filed one has its id in the note's key."""
    packed = pack(replace(checkpoint, id="", run_id=None))
    return {"version": VERSION, **({"id": checkpoint.id} if checkpoint.latest else {}), "packed": packed}


def checkpoint_of(note: Note) -> StoredCheckpoint:
    document = unpack(note.document["packed"])
    read = {
        "id": note.document.get("id") or keys.id_of_checkpoint(note.key),
        "run_id": note.run_id,
        "checkpoint": _value(document["checkpoint"]),
        "metadata": _value(document["metadata"]),
        "values": {channel: _value(value) for channel, value in document["values"].items()},
        "writes": _writes(document["writes"]),
        "early": {name: _writes(writes) for name, writes in document["early"].items()},
    }
    return StoredCheckpoint(**{**document, **read})


def writes_note(writes: Iterable[Write]) -> dict[str, JSON]:
    """The document of a note that keeps writes apart from their checkpoint."""
    return {"version": VERSION, "packed": pack([*writes])}


def writes_of(note: Note) -> tuple[Write, ...]:
    return _writes(unpack(note.document["packed"]))


def is_of_first_form(note: Note) -> bool:
    return "version" not in note.document


def _value(document: dict[str, Any]) -> Any:
    """What a value is, its fields say."""
    if "data" in document:
        return Serialized(**document)
    if "parts" in document:
        parts = [part if isinstance(part, bytes) else Part(**part) for part in document["parts"]]
        return Referring(**{**document, "parts": tuple(parts)})
    spans = tuple((first, end) for first, end in document["spans"])
    return Messages(spans, document["digest"]) if "digest" in document else Items(spans)


def _writes(documents: Iterable[dict[str, Any]]) -> tuple[Write, ...]:
    return tuple(Write(**{**document, "value": _value(document["value"])}) for document in documents)
