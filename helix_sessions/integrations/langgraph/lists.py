"""Lists that grow are stored item by item, once, and a checkpoint says where its items are.

The items of the root graph's `messages` are messages of the transcript, at their positions. Those of other
long lists are notes, by number. So a step stores what it added, and not the list.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from helix_sessions import documents
from helix_sessions.exceptions import CheckpointNotFound
from helix_sessions.integrations.langgraph import places
from helix_sessions.integrations.langgraph.codec import Codec
from helix_sessions.integrations.langgraph.trees import digest
from helix_sessions.store import SessionStore
from helix_sessions.types import JSON

MESSAGES = "messages"
LONG = 2048
"""A list whose document has more characters is stored item by item."""


def is_transcript(namespace: str, channel: str, value: Any) -> bool:
    return channel == MESSAGES and namespace == "" and type(value) is list


def spans_of(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers as ranges: `[[0, 400], [402, 403]]`."""
    spans: list[list[int]] = []
    if numbers and numbers == [*range(numbers[0], numbers[0] + len(numbers))]:  # as they mostly are
        return [[numbers[0], numbers[-1] + 1]]
    for number in numbers:
        if spans and spans[-1][1] == number:
            spans[-1][1] = number + 1
        else:
            spans.append([number, number + 1])
    return spans


def numbers_of(spans: Iterable[list[int]]) -> list[int]:
    return [number for first, end in spans for number in range(first, end)]


class Reader:
    """Reads the lists of a thread's checkpoints; what several checkpoints share is read once."""

    def __init__(self, store: SessionStore, thread: str, codec: Codec) -> None:
        self._store = store
        self._thread = thread
        self._codec = codec
        self._texts: dict[int, str] = {}
        self._items: dict[str, dict[int, JSON]] = {}

    def transcript(self, stored: dict[str, JSON]) -> tuple[list[Any], list[int]]:
        """The messages of a list, and their positions."""
        numbers = numbers_of(stored["m"])
        missing = [number for number in numbers if number not in self._texts]
        for first, end in _few(spans_of(sorted(missing))):
            self._read(first, end)
        if any(number not in self._texts for number in numbers) or (
            numbers and digest(self._texts[numbers[-1]]) != stored["d"]
        ):
            raise self._gone()
        messages = documents.load_all([self._texts[number] for number in numbers])
        return [self._codec.decode_message(message) for message in messages], numbers

    def message(self, number: int, known_by: str) -> dict[str, JSON]:
        """One message that something else says the place and the digest of."""
        if number not in self._texts:
            self._read(number, number + 1)
        text = self._texts.get(number)
        if text is None or digest(text) != known_by:
            raise self._gone()
        message: dict[str, JSON] = documents.load(text)
        return message

    def _read(self, first: int, end: int) -> None:
        page = self._store.get_message_texts(self._thread, offset=first, limit=end - first)
        self._texts.update(enumerate(page.texts, first))

    def _gone(self) -> CheckpointNotFound:
        return CheckpointNotFound(
            f"The transcript of {self._thread!r} was truncated: this checkpoint's messages are gone."
        )

    def noted(self, namespace: str, channel: str, stored: dict[str, JSON]) -> tuple[list[Any], list[int]]:
        """The items of any other list, and their numbers."""
        prefix = places.items(namespace, channel)
        numbers = numbers_of(stored["n"])
        known = self._items.setdefault(prefix, {})
        if any(number not in known for number in numbers):
            for note in self._store.get_notes(self._thread, prefix=prefix):
                known[int(note.key.removeprefix(prefix))] = note.document
        return [self._codec.decode(known[number]) for number in numbers], numbers


def _few(spans: list[list[int]]) -> list[list[int]]:
    """Ranges joined where reading what lies between costs less than asking again."""
    joined: list[list[int]] = []
    for first, end in spans:
        if joined and first - joined[-1][1] <= 100:
            joined[-1][1] = end
        else:
            joined.append([first, end])
    return joined
