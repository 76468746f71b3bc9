"""Where memories are: namespaces and keys, checked, and as they are stored.

A namespace is stored as its parts, each with an end mark behind it that sorts before every character. So the
texts sort as the tuples do, and a prefix is a range: from its own text to where its last end mark would be
one higher. The two characters that have a meaning here are escaped.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from helix_sessions.exceptions import InvalidInput
from helix_sessions.store.engine import inputs

Namespace = tuple[str, ...]

OWNER = "owner"
"""A namespace that begins with this and the key of a user belongs to that user."""

ANY = "*"
"""In a pattern: any one part."""

MAX_PARTS = 10
MAX_BYTES = 1_500
"""Of a namespace. With a key it fits into an entry of an index."""
MAX_KEY = inputs.MAX_ID

_END, _AFTER_END, _ESCAPE = "\x01", "\x02", "\x02"


def namespace(value: Any, what: str = "The namespace", *, least: int = 1) -> Namespace:
    """A namespace as a tuple of texts."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise InvalidInput(f"{what} must be a tuple of strings, not {inputs.shown(value)}.")
    if not least <= len(value) <= MAX_PARTS:
        raise InvalidInput(f"{what} has {len(value)} parts; {least} to {MAX_PARTS} are allowed.")
    parts = tuple(inputs.text(part, f"A part of {what[0].lower()}{what[1:]}") for part in value)
    if not all(parts):
        raise InvalidInput(f"A part of {what[0].lower()}{what[1:]} is empty.")
    size = len(stored(parts).encode())
    if size > MAX_BYTES:
        raise InvalidInput(f"{what} takes {size} bytes; {MAX_BYTES} are allowed.")
    return parts


def prefix(value: Any, what: str = "The prefix") -> Namespace:
    """The beginning of namespaces; an empty one is that of all."""
    return namespace(value, what, least=0)


def key(value: Any) -> str:
    found = inputs.text(value, "The key of a memory", limit=MAX_KEY)
    if not found:
        raise InvalidInput("The key of a memory is empty.")
    return found


def stored(parts: Namespace) -> str:
    """A namespace as one text."""
    return "".join(f"{_escaped(part)}{_END}" for part in parts)


def parts_of(text: str) -> Namespace:
    """The namespace of a stored text."""
    return tuple(_plain(part) for part in text.split(_END)[:-1])


def bounds(parts: Namespace) -> tuple[str, str] | None:
    """The stored texts of all that begin so: from the first to before the second. `None` for everything."""
    if not parts:
        return None
    return stored(parts), after(parts, below=True)


def after(parts: Namespace, *, below: bool = False) -> str:
    """The first stored text behind a namespace, or behind all that lies below it."""
    text = stored(parts)
    return f"{text[:-1]}{_AFTER_END}" if below else f"{text}{_END}"


def memory_id(parts: Namespace, name: str) -> str:
    """What a memory is found by."""
    return sha256(f"{stored(parts)}\0{name}".encode()).hexdigest()[:32]


def owner_namespace(owner: Any) -> Namespace:
    """Where the memories of a user are."""
    return (OWNER, str(inputs.required_owner_key(owner)))


def begins_with(parts: Namespace, pattern: Namespace) -> bool:
    """Whether the first parts fit a pattern, in which `*` stands for any one part."""
    return len(parts) >= len(pattern) and all(
        wanted in (ANY, part) for part, wanted in zip(parts, pattern, strict=False)
    )


def ends_with(parts: Namespace, pattern: Namespace) -> bool:
    """Whether the last parts fit a pattern."""
    return begins_with(parts[::-1], pattern[::-1])


def _escaped(part: str) -> str:
    if _END in part or _ESCAPE in part:
        return part.replace(_ESCAPE, f"{_ESCAPE}\x03").replace(_END, f"{_ESCAPE}\x02")
    return part


def _plain(text: str) -> str:
    if _ESCAPE not in text:
        return text
    pieces = text.split(_ESCAPE)
    # Behind an escape stands \x02, which the split has taken as another escape, or \x03.
    plain, index = [pieces[0]], 1
    while index < len(pieces):
        if pieces[index].startswith("\x03"):
            plain.append(f"{_ESCAPE}{pieces[index][1:]}")
            index += 1
        else:
            plain.append(f"{_END}{pieces[index + 1]}")
            index += 2
    return "".join(plain)
