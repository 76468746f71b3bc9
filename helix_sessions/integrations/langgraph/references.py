"""Texts of messages that a value repeats: kept once, in the transcript, and read there.

LangGraph hands over a message several times: in the input, in pending writes, in the list. Once it is in the
transcript, the bytes of a value that repeat one of its texts become a reference to it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from helix_sessions.exceptions import CheckpointNotFound
from helix_sessions.integrations.langgraph.values import Serialized
from helix_sessions.types import JSON

_LONG = 64
"""Bytes from which on a text is worth a reference."""
_MESSAGES = 16
_BYTES = 65_536
"""So much is remembered, to be found in the writes that come late."""


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
        data = b"".join(self._bytes(part, texts_of) for part in self.parts)
        if _digest(data) != self.digest:
            raise CheckpointNotFound(
                "The transcript was truncated: what this checkpoint repeats of it is gone."
            )
        return Serialized(self.type, data)

    def _bytes(self, part: bytes | Part, texts_of: Callable[[int], list[bytes]]) -> bytes:
        if isinstance(part, bytes):
            return part
        texts = texts_of(part.position)
        return texts[part.number] if part.number < len(texts) else b""


@dataclass(frozen=True, slots=True)
class Recent:
    """The long texts of the newest messages, with their positions."""

    messages: tuple[tuple[int, list[bytes]], ...] = ()

    def and_then(self, more: Iterable[tuple[int, dict[str, JSON]]]) -> "Recent":
        found = [*self.messages, *((position, long_texts(message)) for position, message in more)]
        kept: list[tuple[int, list[bytes]]] = []
        room = _BYTES
        for position, texts in reversed(found[-_MESSAGES:]):
            room -= sum(map(len, texts))
            if room < 0 and kept:
                break
            kept.insert(0, (position, texts))
        return Recent(tuple(kept))

    def refer(self, value: Serialized) -> Serialized | Referring:
        """The value with references for the texts that it repeats."""
        parts: list[bytes | Part] = [value.data]
        for position, texts in reversed(self.messages):
            for number, text in enumerate(texts):
                if text in value.data:
                    parts = [each for part in parts for each in _split(part, text, Part(position, number))]
        if len(parts) == 1:
            return value
        return Referring(value.type, tuple(parts), _digest(value.data))


def long_texts(message: JSON) -> list[bytes]:
    """The texts of a message that are worth a reference, in the order of the document."""
    found: list[bytes] = []
    _collect(message, found)
    return found


def _collect(value: Any, found: list[bytes]) -> None:
    if isinstance(value, str):
        if len(value) >= _LONG:
            found.append(value.encode())
    elif isinstance(value, dict):
        for each in value.values():
            _collect(each, found)
    elif isinstance(value, list):
        for each in value:
            _collect(each, found)


def _split(part: bytes | Part, text: bytes, reference: Part) -> list[bytes | Part]:
    if not isinstance(part, bytes):
        return [part]
    pieces: list[bytes | Part] = []
    for piece in part.split(text):
        pieces += [piece, reference]
    return pieces[:-1]


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:12]
