"""JSON documents as text that comes back exactly: what may be stored, how it is written, how it is read."""

import json
import math
from hashlib import sha256
from typing import Any

from helix_sessions.conf import conf
from helix_sessions.encryption import SEALED
from helix_sessions.exceptions import InvalidDocument

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

_PLAIN = frozenset((str, int, bool, type(None)))
_ONLY_STRINGS = frozenset((str,))


def check(value: Any) -> None:
    """Raise `InvalidDocument` unless `value` is JSON that comes back equal."""
    limit = conf.MAX_DOCUMENT_DEPTH
    room = conf.MAX_DOCUMENT_BYTES
    level: list[Any] = [value]
    depth = 0
    while level:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                if item and set(map(type, item)) != _ONLY_STRINGS:
                    _check_keys(item)
                below.extend([value for value in item.values() if type(value) not in _PLAIN])
            elif isinstance(item, list | tuple):
                below.extend([value for value in item if type(value) not in _PLAIN])
            else:
                _check_scalar(item)
        depth += 1
        if below and depth > limit:
            raise InvalidDocument(f"The document is nested deeper than {limit} levels.")
        room -= len(below)
        if room < 0:  # found before it is written: a small value that holds itself twice has no end
            raise InvalidDocument(f"The document has more than {conf.MAX_DOCUMENT_BYTES:,} bytes.")
        level = below


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
    """The text of a value that is known to be a document."""
    return _encode(value)


def dump(value: Any) -> str:
    """The text of a document, or `InvalidDocument`."""
    check(value)
    try:
        text = write(value)
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise InvalidDocument("A string holds a lone surrogate, which no encoding can carry.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(f"The document cannot be written as JSON: {error}.") from None
    if size > conf.MAX_DOCUMENT_BYTES:
        raise InvalidDocument(f"The document has {size:,} bytes; {conf.MAX_DOCUMENT_BYTES:,} are allowed.")
    return text


def load(text: str) -> Any:
    """The value a document's text stands for."""
    if text.startswith(SEALED):
        raise ValueError("sealed content was read as if it were a document")
    return json.loads(text)


def load_all(texts: list[str]) -> list[Any]:
    """The values of many documents, parsed in one go."""
    values: list[Any] = json.loads(f"[{','.join(texts)}]")
    return values


def digest(*texts: str) -> str:
    """A fingerprint by which equal texts are known without reading them again."""
    framed = texts[0] if len(texts) == 1 else "".join(f"{len(text)}:{text}" for text in texts)
    return sha256(framed.encode()).hexdigest()[:32]
