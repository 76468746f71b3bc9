"""Lists that grow are stored item by item, once, and a checkpoint says which items it has.

The items of the root graph's `messages` are messages of the transcript, by their positions. Those of other
long lists are notes, by numbers. So a step stores what it added, and not the list.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from helix_sessions.content import documents
from helix_sessions.integrations.langgraph.stored import Span
from helix_sessions.integrations.langgraph.values import FINGERPRINT

LONG = 2048
"""A list whose serialized form has more bytes is stored item by item."""


@dataclass(frozen=True, slots=True)
class StoredList:
    """The items of a list that is stored: their numbers, and their fingerprints one after another."""

    numbers: Sequence[int] = ()
    fingerprints: bytes = b""

    def find(self, fingerprints: bytes) -> list[int | None]:
        """For each item of another list the number it is stored under, or `None`."""
        same = _common(self.fingerprints, fingerprints)
        found: list[int | None] = [*self.numbers[:same]]
        left: defaultdict[bytes, list[int]] = defaultdict(list)
        for number, each in zip(self.numbers[same:], _each(self.fingerprints, same), strict=True):
            left[each].append(number)
        found += [left[each].pop(0) if left[each] else None for each in _each(fingerprints, same)]
        return found


def is_transcript(namespace: str, channel: str, value: Any) -> bool:
    return channel == "messages" and namespace == "" and type(value) is list


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


def digest(text: str) -> str:
    """By which the last message of a list is known again."""
    return documents.digest(text)[:12]


def _common(one: bytes, other: bytes) -> int:
    """How many fingerprints two lists have in common at their beginning; mostly one begins with the other."""
    length = min(len(one), len(other)) // FINGERPRINT
    if one[: length * FINGERPRINT] == other[: length * FINGERPRINT]:
        return length
    pairs = zip(_each(one, 0), _each(other, 0), strict=False)
    return next(index for index, (mine, yours) in enumerate(pairs) if mine != yours)


def _each(fingerprints: bytes, first: int) -> list[bytes]:
    starts = range(first * FINGERPRINT, len(fingerprints), FINGERPRINT)
    return [fingerprints[start : start + FINGERPRINT] for start in starts]
