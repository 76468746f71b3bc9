"""What the errors of any provider's client have in common: a status, and how long to wait."""

import email.utils
import math
from collections.abc import Iterator
from typing import Any

from django.utils import timezone

_TRANSIENT_STATUSES = (408, 409, 425, 429)
_TOO_LONG = ("context_length_exceeded", "prompt is too long", "maximum context length")
"""How providers say that a context is too large."""

_HTTP_CLIENTS = ("httpx", "httpx2", "requests", "aiohttp")
_NETWORK = ("TransportError", "ConnectionError", "Timeout", "ClientConnectionError")
"""The errors of HTTP clients that no answer came with."""


def is_transient_status(status: int) -> bool:
    """Whether a later attempt may succeed."""
    return status in _TRANSIENT_STATUSES or status >= 500


def is_of_the_network(error: BaseException) -> bool:
    """Whether no answer came at all."""
    if isinstance(error, ConnectionError):
        return True
    bases = ((base.__module__.partition(".")[0], base.__name__) for base in type(error).__mro__)
    return any(module in _HTTP_CLIENTS and name in _NETWORK for module, name in bases)


def says_too_long(text: str) -> bool:
    """Whether a provider says that the context is too large."""
    said = text.lower()
    return any(phrase in said for phrase in _TOO_LONG)


def retry_after(error: BaseException) -> float | None:
    """The seconds that a provider asks for."""
    known = getattr(error, "retry_after", None)
    if isinstance(known, int | float):
        return float(known)
    for headers in _headers(error):
        asked = headers.get("retry-after")
        if asked is not None:
            return _seconds(str(asked))
    return None


def _headers(error: BaseException | None) -> Iterator[Any]:
    while error is not None:
        for found in (getattr(error, "headers", None), getattr(_response(error), "headers", None)):
            if found is not None and hasattr(found, "get"):
                yield found
        error = error.__cause__


def _response(error: BaseException) -> Any:
    return getattr(error, "response", None)


def _seconds(text: str) -> float | None:
    """Of a number, or of a date."""
    try:
        seconds = float(text)
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max((email.utils.parsedate_to_datetime(text) - timezone.now()).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None
