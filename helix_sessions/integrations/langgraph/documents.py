"""The typed documents of a thread, and the notes they are kept in. What is stored, and why, is told in
`docs/explanation/langgraph-threads.md`.

It takes compression, and references to what the transcript has already, to keep a conversation in three times
the text of its messages: LangGraph hands over a message several times, in the input, in pending writes and in
the list. Once it is in the transcript, the bytes of a value that repeat one of its texts become a reference.
"""

import base64
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any

from helix_sessions.exceptions import CheckpointNotFound
from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.langgraph import keys, large
from helix_sessions.integrations.langgraph.values import Serialized
from helix_sessions.integrations.langgraph.words import WORDS
from helix_sessions.types import JSON, Note

with needed_from("langgraph"):
    import ormsgpack

VERSION = 3
"""Of the form. The first had none; `first_form.py` reads it. The second had large contents inside."""
_NO_BASE64 = "."
"""Before what is packed, which changes with every write: so it is not taken for an attachment."""
_PARTS = 1
"""The mark of bytes that are partly kept beside the packed document."""
_LONG = 64
"""Bytes from which on a text is worth a reference."""
_MESSAGES = 16
_BYTES = 65_536
"""So much of the transcript is remembered, to be found in the writes that come late."""

Span = tuple[int, int]
"""Numbers from the first up to the second, without it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the long texts of a message of the transcript."""

    position: int
    number: int


@dataclass(frozen=True, slots=True)
class Referring:
    """A serialized value whose bytes are partly in the transcript."""

    type: str
    parts: tuple[bytes | Part, ...]
    digest: str

    def resolve(self, texts_of: Callable[[int], list[bytes]]) -> Serialized:
        """The value; `CheckpointNotFound` if the transcript has not got its texts any more."""
        pieces = [
            part if isinstance(part, bytes) else b"".join(texts_of(part.position)[part.number :][:1])
            for part in self.parts
        ]
        data = b"".join(pieces)
        if _digest(data) != self.digest:
            raise CheckpointNotFound(
                "The transcript was truncated: what this checkpoint repeats of it is gone."
            )
        return Serialized(self.type, data)


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

    @property
    def size(self) -> int:
        return len(self.value.data) if isinstance(self.value, Serialized) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A checkpoint as it is stored."""

    id: str
    namespace: str
    parent: str | None
    checkpoint: Scalar
    """LangGraph's own, without its id and its values."""
    metadata: Scalar
    values: Mapping[str, Value] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
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

    @property
    def key(self) -> str:
        return keys.head(self.namespace) if self.latest else keys.checkpoint(*self.name)


def merged(writes: Iterable[Write], more: Iterable[Write]) -> tuple[Write, ...]:
    """Writes with more of them. What a task has written stays, but for special channels."""
    found = {(write.task, write.index): write for write in writes}
    for write in more:
        if write.special is not None or (write.task, write.index) not in found:
            found[write.task, write.index] = write
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Recent:
    """The long texts of the newest messages, with their positions."""

    messages: tuple[tuple[int, list[bytes]], ...] = ()

    def and_then(self, first: int, messages: Iterable[dict[str, JSON]]) -> "Recent":
        """These, and messages that follow from the position `first` on."""
        said = [(position, long_texts(message)) for position, message in enumerate(messages, first)]
        kept: list[tuple[int, list[bytes]]] = []
        room = _BYTES
        for position, texts in reversed([*self.messages, *said][-_MESSAGES:]):
            room -= sum(map(len, texts))
            if room < 0 and kept:
                break
            kept.insert(0, (position, texts))
        return Recent(tuple(kept))

    def file(self, checkpoint: StoredCheckpoint) -> StoredCheckpoint:
        """A checkpoint as it is kept once another has followed it."""
        values = {channel: self._refer(value) for channel, value in checkpoint.values.items()}
        writes = self.file_writes(checkpoint.writes)
        return replace(checkpoint, values=values, writes=writes, latest="", early={}, numbers={})

    def file_writes(self, writes: Iterable[Write]) -> tuple[Write, ...]:
        return tuple(replace(write, value=self._refer(write.value)) for write in writes)

    def _refer(self, value: Any) -> Any:
        """The value with references for the texts that it repeats."""
        if not isinstance(value, Serialized) or len(value.data) < _LONG:
            return value
        parts: list[bytes | Part] = [value.data]
        for position, texts in reversed(self.messages):
            for number, text in enumerate(texts):
                if text in value.data:
                    parts = [each for part in parts for each in _split(part, text, Part(position, number))]
        return value if len(parts) == 1 else Referring(value.type, tuple(parts), _digest(value.data))


def long_texts(message: JSON) -> list[bytes]:
    """The texts of a message that are worth a reference, in the order of the document."""
    if isinstance(message, str):
        return [message.encode()] if len(message) >= _LONG else []
    inner: Iterable[JSON] = ()
    if isinstance(message, dict | list):
        inner = message.values() if isinstance(message, dict) else message
    return [text for each in inner for text in long_texts(each)]


def _split(part: bytes | Part, text: bytes, reference: Part) -> list[bytes | Part]:
    if not isinstance(part, bytes):
        return [part]
    pieces = part.split(text)
    return [each for piece in pieces for each in (piece, reference)][:-1]


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:12]


def spans_of(numbers: Sequence[int]) -> tuple[Span, ...]:
    """Numbers as ranges: `((0, 400), (402, 403))`."""
    if numbers and [*numbers] == [*range(numbers[0], numbers[0] + len(numbers))]:  # as they mostly are
        return ((numbers[0], numbers[-1] + 1),)
    spans: list[Span] = []
    for number in numbers:
        if spans and spans[-1][1] == number:
            spans[-1] = (spans[-1][0], number + 1)
        else:
            spans.append((number, number + 1))
    return tuple(spans)


def numbers_of(spans: Iterable[Span]) -> Sequence[int]:
    spans = [*spans]
    return range(*spans[0]) if len(spans) == 1 else [number for span in spans for number in range(*span)]


def note_of(checkpoint: StoredCheckpoint) -> dict[str, JSON]:
    """The document of the note that keeps a checkpoint. A filed one has its id in the note's key."""
    packed = _pack(replace(checkpoint, id="", run_id=None))
    return {"version": VERSION, **({"id": checkpoint.id} if checkpoint.latest else {}), **packed}


def checkpoint_of(note: Note) -> StoredCheckpoint:
    document = _unpack(note)
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


def note_of_writes(writes: Iterable[Write]) -> dict[str, JSON]:
    """The document of a note that keeps writes apart from their checkpoint."""
    return {"version": VERSION, **_pack([*writes])}


def writes_of(note: Note) -> tuple[Write, ...]:
    return _writes(_unpack(note))


def is_of_first_form(note: Note) -> bool:
    return "version" not in note.document


def _pack(document: Any) -> dict[str, JSON]:
    """The document as compressed text, and its large contents beside it, each once."""
    contents: dict[large.Large, int] = {}

    def without_contents(kind: str, data: bytes) -> Any:
        parts = large.split(kind, data)
        if len(parts) == 1:
            return data
        numbered = [
            contents.setdefault(part, len(contents)) if number % 2 else part
            for number, part in enumerate(parts)
        ]
        return ormsgpack.Ext(_PARTS, ormsgpack.packb(numbered))

    def plain(value: Any) -> dict[str, Any]:
        found = {each.name: getattr(value, each.name) for each in fields(value)}
        if isinstance(value, Serialized):
            found["data"] = without_contents(value.type, value.data)
        elif isinstance(value, Referring):
            found["parts"] = [
                without_contents(value.type, part) if isinstance(part, bytes) else part
                for part in value.parts
            ]
        return found

    written = ormsgpack.packb(document)
    if large.may_be_in(written):
        written = ormsgpack.packb(document, default=plain, option=ormsgpack.OPT_PASSTHROUGH_DATACLASS)
    press = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=WORDS)
    text = base64.b64encode(press.compress(written) + press.flush()).decode()
    beside = {"contents": [large.to_json(content) for content in contents]} if contents else {}
    return {"packed": f"{_NO_BASE64}{text}", **beside}


def _unpack(note: Note) -> Any:
    contents = [large.from_json(content) for content in note.document.get("contents", [])]

    def join(_: int, packed: bytes) -> bytes:
        return b"".join(
            contents[part] if isinstance(part, int) else part for part in ormsgpack.unpackb(packed)
        )

    packed = base64.b64decode(note.document["packed"].removeprefix(_NO_BASE64))
    written = zlib.decompressobj(-15, zdict=WORDS).decompress(packed)
    return ormsgpack.unpackb(written, ext_hook=join)


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
