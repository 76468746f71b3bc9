"""Errors as documents, and what makes two of them the same trouble."""

import re
from hashlib import sha256
from typing import Any

_LONGEST = 2_000
"""So much of a message tells its cause."""

_SENTENCES = (
    *("TransientError", "ContextOverflow", "ContextUnavailable"),
    *("InvalidDocument", "InvalidInput", "InvalidWrites"),
)
"""Errors of ours, whose messages are sentences."""

_VARIABLE = re.compile(
    r"""
      0x[0-9a-f]+                                         # addresses
    | \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b   # UUIDs
    | \b(?=[a-z_-]*[0-9])[0-9a-z_-]{16,}\b                # ids of requests, keys, tokens
    | \b(?=[a-f]*[0-9])[0-9a-f]{8,}\b                     # digests
    | \d+                                                 # numbers and times
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BETWEEN = re.compile(r"(?:#[\s:.,TZ+-]*)+#|\s+")


def document(
    code: str, message: str, *, type: str | None = None, attempt: int | None = None
) -> dict[str, Any]:
    """An error as runs and sessions keep it. `type`: the class of the exception. `attempt`: from 1 on."""
    return {
        "code": code,
        "message": message,
        "type": type,
        "attempt": attempt,
        "fingerprint": fingerprint(type, message),
    }


def in_words(error: Any) -> str:
    """An error as a person reads it: `type: message` of a document, or else as it was given."""
    if not isinstance(error, dict):
        return "" if error is None else str(error)
    kind, message = error.get("type"), error.get("message")
    told = str(message or error.get("code") or kind or "")
    return told if not kind or kind in _SENTENCES or kind == told else f"{kind}: {told}"


def fingerprint(type: str | None, message: str) -> str:
    """The same for errors that differ in numbers, ids and times only."""
    text = _VARIABLE.sub("#", message[:_LONGEST])
    text = _BETWEEN.sub(lambda found: "#" if "#" in found[0] else " ", text).strip()
    return sha256(f"{type or ''}\n{text}".encode(errors="surrogatepass")).hexdigest()[:32]


def fingerprint_of(error: Any) -> str | None:
    """The fingerprint of an error as its caller gave it: its own, or one of its type and message."""
    if error is None:
        return None
    if not isinstance(error, dict):
        return fingerprint(None, str(error))
    own = error.get("fingerprint")
    if isinstance(own, str) and own:
        return own if re.fullmatch("[0-9a-f]{32}", own) else fingerprint(None, own)
    kind, message = error.get("type"), error.get("message")
    text = message if isinstance(message, str) else str(error.get("code", ""))
    return fingerprint(kind if isinstance(kind, str) else None, text)
