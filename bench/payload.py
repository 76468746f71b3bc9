"""What one step writes: two messages of 1 KB and a state of 4 KB, other words each time."""

import random
from dataclasses import dataclass
from itertools import cycle
from typing import Any

MESSAGE_BYTES = 1024
STATE_BYTES = 4096
VARIANTS = 64

_random = random.Random(20240229)
_SYLLABLES = [a + b for a in "bcdfghklmnprstvw" for b in "aeiou"]
_WORDS = ["".join(_random.choices(_SYLLABLES, k=_random.randint(1, 4))) for _ in range(2000)]

Document = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """What a model turn left behind."""

    messages: list[Document]
    state: Document


def text(size: int) -> str:
    """So many characters of prose that compresses about as well as prose does."""
    words = " ".join(_random.choices(_WORDS, k=size // 3))
    return words[:size]


def message(role: str, size: int = MESSAGE_BYTES) -> Document:
    """One message whose JSON has about `size` bytes."""
    return {"role": role, "content": text(size - 35)}


def state(size: int = STATE_BYTES, keys: int = 8) -> Document:
    """A document of several keys whose JSON has about `size` bytes."""
    share = size // keys
    return {f"part_{number}": text(share - 14) for number in range(keys)}


def steps() -> "cycle[Step]":
    """Steps without end, made beforehand so that making them is not measured."""
    made = [Step([message("user"), message("assistant")], state()) for _ in range(VARIANTS)]
    return cycle(made)


def history(count: int) -> list[Document]:
    """A transcript of so many messages."""
    some = [message(role) for role in ("user", "assistant") * 32]
    return [some[number % len(some)] for number in range(count)]
