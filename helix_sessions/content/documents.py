"""JSON documents as text that comes back exactly: what may be stored, how it is written, how it is read."""

import json
import math
from collections.abc import Callable
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any

from helix_sessions.conf import conf
from helix_sessions.content import blobs
from helix_sessions.content.encryption import SEALED
from helix_sessions.exceptions import InvalidDocument

try:
    from orjson import dumps as _encode_fast
except ImportError:  # the extra `fast`
    _encode_fast = None  # type: ignore[assignment]

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

MAX_DEPTH = 500
"""The deepest nesting of a document that is stored."""

WRAPPED = 4
"""How many levels the store adds where it composes a document of others: in the frame of a checkpoint, in the
data of an event, in writes."""

_LISTS = (list, tuple)
_PLAIN = frozenset((str, int, bool, type(None)))
_SURROGATE = "A string holds a lone surrogate, which no encoding can carry."
_ONLY_STRINGS = frozenset((str,))


def check(value: Any, most_bytes: float | None = None, *, wrapped: bool = False) -> bool:
    """Raise `InvalidDocument` unless `value` is JSON that comes back equal; return whether it has no
    floats."""
    room = most_bytes = conf.MAX_DOCUMENT_BYTES if most_bytes is None else most_bytes
    deepest = MAX_DEPTH + (WRAPPED if wrapped else 0)
    level: list[Any] = [value]
    depth = 0
    plain = True
    while level:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                if item and set(map(type, item)) != _ONLY_STRINGS:
                    _check_keys(item)
                below.extend([value for value in item.values() if type(value) not in _PLAIN])
            elif isinstance(item, _LISTS):
                below.extend([value for value in item if type(value) not in _PLAIN])
            else:
                _check_scalar(item)
                plain = plain and not isinstance(item, float)
        depth += 1
        if below and depth > deepest:
            raise InvalidDocument(f"The document is nested deeper than {deepest} levels.")
        room -= len(below)
        if room < 0:  # before it is serialized: a small value that contains itself twice has no end
            raise InvalidDocument(f"The document has more than {most_bytes:,} bytes.")
        level = below
    return plain


def _check_keys(item: dict[Any, Any]) -> None:
    for key in item:
        if not isinstance(key, str):
            raise InvalidDocument(f"A key of an object must be a string, not {type(key).__name__}.")


def _check_scalar(item: Any) -> None:
    if isinstance(item, float):
        if not math.isfinite(item):
            raise InvalidDocument("NaN and Infinity are not JSON.")
    elif not isinstance(item, str | int | None):
        raise InvalidDocument(f"A {type(item).__name__} is not a JSON value.")


def write(value: Any) -> str:
    """The text of a value that was checked before."""
    return _written_fast(value) or _encode(value)


def dump(value: Any) -> str:
    """The text of a document, or `InvalidDocument`. Equal documents have equal texts, with and without
    orjson."""
    most_bytes = conf.MAX_DOCUMENT_BYTES
    plain = check(value, most_bytes)
    try:
        text = write(value) if plain else _encode(value)
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise InvalidDocument(_SURROGATE) from None
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(f"The document cannot be written as JSON: {error}.") from None
    if size > most_bytes:
        raise InvalidDocument(f"The document has {size:,} bytes; {most_bytes:,} are allowed.")
    return text


def _written_fast(value: Any) -> str | None:
    """The text by orjson, which equals that of `json` except for the exponents of floats.

    `None` without orjson, and for what it cannot write: long integers, deep nesting, lone surrogates.
    """
    try:
        return None if _encode_fast is None else _encode_fast(value).decode()
    except TypeError:
        return None


def load(text: str) -> Any:
    """The value of a document's text."""
    if text.startswith(SEALED):
        raise ValueError("sealed content was read as if it were a document")
    return json.loads(blobs.whole(text) if text.startswith(blobs.MARK) else text)


def load_foreign(text: str, *, wrapped: bool = False) -> Any:
    """The value of a text that was written elsewhere, or `InvalidDocument`: what `dump` refuses is refused.
    `wrapped`: the store composed it of several documents, so it is a little deeper and of any size."""
    most_bytes = math.inf if wrapped else conf.MAX_DOCUMENT_BYTES
    try:
        value = json.loads(text)
        check(value, most_bytes, wrapped=wrapped)
        if "\\u" in text:  # only escapes bring lone surrogates in
            _encode(value).encode()
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise InvalidDocument(_SURROGATE) from None
    except InvalidDocument:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(f"The document cannot be read as JSON: {error}.") from None
    if size > most_bytes:
        raise InvalidDocument(f"The document has {size:,} bytes; {most_bytes:,} are allowed.")
    return value


def load_all(texts: list[str]) -> list[Any]:
    """The values of many documents, parsed in one go."""
    values: list[Any] = json.loads(f"[{','.join(texts)}]")
    return values


def has_entries(text: str | None) -> bool:
    """Whether the text of an object that was written here has anything in it; null has not."""
    return text not in (None, "{}")


def canonical(value: Any) -> str:
    """One text for all documents that are equal, with their keys in any order."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def digest(*texts: str) -> str:
    """A fingerprint of a text, to compare texts without reading them."""
    framed = texts[0] if len(texts) == 1 else "".join(f"{len(text)}:{text}" for text in texts)
    return sha256(framed.encode()).hexdigest()[:32]


def secret_keys() -> Callable[[str], bool]:
    """A function that says whether the value under a key is a secret, as `MASKED_KEYS` is now."""
    patterns = [pattern.lower() for pattern in conf.MASKED_KEYS]
    known: dict[str, bool] = {}

    def is_secret(key: str) -> bool:
        if key not in known:
            known[key] = any(fnmatchcase(key.lower(), pattern) for pattern in patterns)
        return known[key]

    return is_secret
