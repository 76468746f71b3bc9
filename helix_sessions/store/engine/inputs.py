"""What callers pass in, checked before anything is locked. Errors are ours, never the database's."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError

from helix_sessions.content import documents, encryption
from helix_sessions.exceptions import InvalidDocument, InvalidInput
from helix_sessions.messages import errors
from helix_sessions.types import HIGHEST_PRIORITY, LOWEST_PRIORITY, ROLES

T = TypeVar("T")
Choice = TypeVar("Choice", bound=str)

MAX_ID = 255
MAX_TOOL_CALL_ID = 256
MAX_CHECKPOINT_ID = 512
MAX_INTEGER = 2**63 - 1
MAX_SECONDS = 366 * 24 * 60 * 60
ERRORS = "errors"
"""Under what the fingerprints of errors are veiled: all sessions alike, so that they can be grouped."""
_OBJECTS = (dict, Mapping)  # what is usual first: it is found sooner
_BYTES_PER_CHARACTER = 3
"""Keeps the widest key, three ids, within the entry of a PostgreSQL index."""


def shown(value: Any) -> str:
    """A value as an error may show it: short, even if its own `repr` is long or fails."""
    try:
        return f"{value!r:.80}"
    except Exception:
        return f"a {type(value).__name__}"


def text(value: Any, what: str, *, limit: int | None = None) -> str:
    """A string that any column can hold."""
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be a string, not {type(value).__name__}.")
    if limit is not None and len(value) > limit:
        raise InvalidInput(f"{what} has {len(value)} characters; {limit} are allowed.")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} holds a lone surrogate.") from None
    if limit is not None and size > limit * _BYTES_PER_CHARACTER:
        raise InvalidInput(f"{what} takes {size} bytes; {limit * _BYTES_PER_CHARACTER} are allowed.")
    if "\x00" in value:
        raise InvalidInput(f"{what} holds a null character.")
    return str.__str__(value)  # an enum's own `str` would be its name


def identifier(value: Any, what: str, *, limit: int = MAX_ID) -> str:
    """An id or a name: not empty, not too long, no control characters."""
    name = text(value, what, limit=limit)
    if not name:
        raise InvalidInput(f"{what} is empty.")
    if not (name.isprintable() or all(unicodedata.category(character) != "Cc" for character in name)):
        raise InvalidInput(f"{what} holds control characters.")
    return name


def is_identifier(value: Any) -> bool:
    """Whether it may be an id or a name."""
    try:
        identifier(value, "It")
    except (InvalidInput, InvalidDocument):
        return False
    return True


def optional_identifier(value: Any, what: str, *, limit: int = MAX_ID) -> str | None:
    return None if value is None else identifier(value, what, limit=limit)


def identifiers(values: Any, what: str) -> list[str]:
    """Ids or names, each once."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise InvalidInput(f"{what} must be a list of strings.")
    return list(dict.fromkeys(identifier(value, f"One of {what}") for value in values))


def choice(value: Any, allowed: Sequence[Choice], what: str) -> Choice:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidInput(f"{what} must be one of {', '.join(allowed)}, not {shown(value)}.")
    return allowed[allowed.index(value)]


def integer(value: Any, what: str, *, minimum: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{what} must be an integer, not {type(value).__name__}.")
    if not minimum <= value <= MAX_INTEGER:
        raise InvalidInput(f"{what} must be between {minimum} and {MAX_INTEGER}, not {shown(value)}.")
    return int(value)


def priority(value: Any) -> int:
    """How urgent a session is beside others."""
    number = integer(value, "priority", minimum=LOWEST_PRIORITY)
    if number > HIGHEST_PRIORITY:
        raise InvalidInput(
            f"priority must be between {LOWEST_PRIORITY} and {HIGHEST_PRIORITY}, not {shown(value)}."
        )
    return number


def flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{what} must be True or False, not {shown(value)}.")
    return value


def optional_integer(value: Any, what: str, *, minimum: int = 0) -> int | None:
    return None if value is None else integer(value, what, minimum=minimum)


def expected_version(value: Any) -> int | None:
    """A version to compare with; one that no session can have is a mismatch, not a mistake."""
    return optional_integer(value, "expected_version", minimum=-MAX_INTEGER)


def moment(value: Any, what: str) -> datetime:
    """An aware time, in UTC."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidInput(f"{what} must be an aware datetime.")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(f"{what} is out of range.") from None


def optional_moment(value: Any, what: str) -> datetime | None:
    return None if value is None else moment(value, what)


def document(value: Any) -> str | None:
    """The text of an optional document; `None` is absent."""
    return None if value is None else documents.dump(value)


def mapping(value: Any, what: str) -> str:
    """The text of a document that must be an object."""
    if not isinstance(value, _OBJECTS):
        raise InvalidDocument(f"{what} must be an object, not {type(value).__name__}.")
    return documents.dump(value if isinstance(value, dict) else dict(value))


def optional_mapping(value: Any, what: str) -> str | None:
    return None if value is None else mapping(value, what)


def string_document(value: Any, what: str) -> str | None:
    """The text of an optional string that may hold any character."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be a string, not {type(value).__name__}.")
    return documents.dump(value)


def error_columns(value: Any) -> dict[str, str | None]:
    """The columns of an error, which is a text or an object, and is kept as given."""
    if value is None:
        return {"error": None, "error_fingerprint": None}
    if isinstance(value, Mapping):
        value = dict(value)
    elif not isinstance(value, str):
        raise InvalidInput(f"error must be a string or an object, not {type(value).__name__}.")
    cause = errors.fingerprint_of(value)
    veiled = None if cause is None else encryption.veil(ERRORS, cause)
    return {"error": document(value), "error_fingerprint": veiled}


def metadata(value: Any) -> str:
    """The text of a metadata object: what operators filter by, so no null characters."""
    written = mapping(value, "metadata")
    if "\\u0000" in written:
        _refuse_null_characters(value)
    return written


def _refuse_null_characters(value: Any) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if "\x00" in item:
                raise InvalidDocument("Metadata holds a null character.")
        elif isinstance(item, Mapping):
            waiting.extend(item.keys())
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)


def tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput("tags must be a list of strings.")
    return tuple(identifier(tag, "A tag") for tag in value)


def message(value: Any) -> tuple[str, str]:
    """A message's role and text."""
    if not isinstance(value, _OBJECTS):
        raise InvalidInput(f"A message must be an object, not {type(value).__name__}.")
    role = choice(value.get("role"), ROLES, "The role of a message")
    return role, documents.dump(value if isinstance(value, dict) else dict(value))


def messages(values: Any) -> list[tuple[str, str]]:
    if not isinstance(values, list) and (
        isinstance(values, str | Mapping) or not isinstance(values, Iterable)
    ):
        raise InvalidInput("Messages must be a list of objects.")
    return [message(value) for value in values]


def optional_turn_message(value: Any) -> tuple[str, str] | None:
    """The role and text of a message given to a turn: an object, or a string that a user said."""
    if value is None:
        return None
    return message({"role": "user", "content": value} if isinstance(value, str) else value)


def value_of(kind: type[T], value: Any, what: str) -> T:
    """A value of a dataclass, itself or as a dict with the same keys."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{what} is a {kind.__name__} or a dict with its keys.")
    known = fields(kind)  # type: ignore[arg-type]
    missing = {one.name for one in known if one.default is MISSING and one.default_factory is MISSING}
    missing -= set(value)
    unknown = set(value) - {one.name for one in known}
    if unknown or missing:
        wrong = ", ".join(sorted(map(str, missing or unknown)))
        raise InvalidInput(f"{what} {'lacks' if missing else 'has no'} {wrong:.200}.")
    return kind(**value)


def values_of(kind: type[T], values: Any, what: str) -> list[T]:
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise InvalidInput(f"{what}s must be a list.")
    return [value_of(kind, value, what) for value in values]


def owner_key(owner: Any) -> Any:
    """The primary key of an owner given as a user or as its key."""
    if owner is None:
        return None
    user_model = get_user_model()
    if isinstance(owner, user_model):
        owner = owner.pk
        if owner is None:
            raise InvalidInput("The owner has not been saved.")
    if isinstance(owner, bool) or not isinstance(owner, str | int | UUID):
        raise InvalidInput(f"{shown(owner)} is not the key of a user.")
    try:
        key = user_model._meta.pk.to_python(owner)
    except (ValidationError, TypeError, ValueError):
        raise InvalidInput(f"{shown(owner)} is not the key of a user.") from None
    if isinstance(key, int):
        return integer(key, "The owner's key", minimum=-MAX_INTEGER)
    return text(key, "The owner's key", limit=MAX_ID) if isinstance(key, str) else key


def required_owner_key(owner: Any) -> Any:
    key = owner_key(owner)
    if key is None:
        raise InvalidInput("An owner is needed.")
    return key


def seconds(value: Any, what: str) -> timedelta:
    """A length of time given as a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SECONDS:
        raise InvalidInput(f"{what} must be a number of seconds between 0 and {MAX_SECONDS}.")
    return timedelta(seconds=value)


def period(value: Any, what: str) -> timedelta:
    """A length of time that can be counted back from now."""
    if not isinstance(value, timedelta):
        raise InvalidInput(f"{what} must be a timedelta.")
    if not timedelta(0) <= value <= timedelta(days=365 * 1000):
        raise InvalidInput(f"{what} is out of range.")
    return value


def share(value: Any, what: str) -> float:
    """A number that is not negative, to multiply with."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1000:
        raise InvalidInput(f"{what} must be a number between 0 and 1000.")
    return value
