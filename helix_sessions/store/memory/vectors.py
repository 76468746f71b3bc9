"""Texts as directions: what an embedder returns, checked, and how near two of them are.

Vectors are stored with length 1, so how near they are is the sum of their products: the cosine, 1 for the
same direction and 0 for texts that have nothing to do with each other.
"""

import inspect
import math
from array import array
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import mul
from typing import TYPE_CHECKING, Any, TypeAlias

from asgiref.sync import async_to_sync
from django.utils.module_loading import import_string

from helix_sessions.conf import conf
from helix_sessions.exceptions import InvalidInput, NotConfigured

if TYPE_CHECKING:
    Vector: TypeAlias = array[float]
else:
    Vector = array  # Python 3.12 can be told of what

Embed: TypeAlias = Callable[[list[str]], Any]

MAX_COMPARED = 20_000
"""So many vectors are compared here, where the database cannot; a search among more is refused."""
MAX_DIMS = 16_000
MAX_PER_MEMORY = 256
"""So many texts of one memory have a vector."""


def embedder(given: Embed | None) -> Embed | None:
    """The embedder of a store: its own, or that of the settings."""
    found = given or conf.EMBEDDER
    if not found:
        return None
    if isinstance(found, str):
        try:
            found = import_string(found)
        except ImportError as error:
            raise NotConfigured(f"EMBEDDER cannot be imported: {error}") from None
    if not callable(found):
        raise NotConfigured("EMBEDDER must be the dotted path of a function.")
    return found


def embedded(embed: Embed | None, texts: list[str]) -> list[Vector]:
    """The vectors of texts. An error of the embedder reaches the caller. It may be a coroutine."""
    if embed is None or not texts:
        return []
    found = embed(texts)
    return checked(async_to_sync(_awaited)(found) if inspect.isawaitable(found) else found, len(texts))


async def _awaited(found: Awaitable[Any]) -> Any:
    return await found


def checked(found: Any, count: int) -> list[Vector]:
    """What an embedder returned for so many texts."""
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise InvalidInput("The embedder did not return a list of vectors.")
    vectors = [_unit(each) for each in found]
    if len(vectors) != count:
        raise InvalidInput(f"The embedder returned {len(vectors)} vectors for {count} texts.")
    if len({len(vector) for vector in vectors}) > 1:
        raise InvalidInput("The embedder returned vectors of different lengths.")
    return vectors


def _unit(numbers: Any) -> Vector:
    try:
        vector = array("d", [float(number) for number in numbers])
        length = math.sqrt(sum(map(mul, vector, vector)))
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("The embedder returned something that is not a vector of numbers.") from None
    if not 1 <= len(vector) <= MAX_DIMS:
        raise InvalidInput(f"A vector has {len(vector)} numbers; 1 to {MAX_DIMS:,} are allowed.")
    if not math.isfinite(length):
        raise InvalidInput("The embedder returned numbers that are not finite.")
    return array("f", [number / length for number in vector] if length else vector)


def nearness(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of the angle between two vectors of length 1."""
    return float(_sum_of_products(one, other))


def _sum_of_products(one: Sequence[float], other: Sequence[float]) -> float:
    return float(sum(map(mul, one, other)))


_sum_of_products = getattr(math, "sumprod", _sum_of_products)  # from Python 3.12 on


def packed(vector: Vector) -> bytes:
    """A vector as bytes."""
    return vector.tobytes()


def unpacked(stored: bytes | Sequence[float]) -> Vector:
    """A vector as it was read: bytes, or numbers."""
    return array("f", stored) if not isinstance(stored, bytes | memoryview) else _from_bytes(bytes(stored))


def _from_bytes(stored: bytes) -> Vector:
    vector = array("f")
    vector.frombytes(stored)
    return vector
