"""The errors of providers, in the words of our loop."""

import email.utils
from collections.abc import Iterator
from typing import Any

from django.utils import timezone
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelAPIError, ModelHTTPError

from helix_sessions.exceptions import ContextOverflow, TransientError
from helix_sessions.runtime.outcomes import words

_TRANSIENT_STATUSES = (408, 409, 425, 429)
_TOO_LONG = ("context_length_exceeded", "prompt is too long", "maximum context length")
"""How providers say that a context is too large."""

_HTTP_CLIENTS = ("httpx", "httpx2")
"""Which of them pydantic-ai uses depends on its version."""

_LASTING = ("ModelRequestRejectedError", "ModelQuotaExceededError")
"""Errors without a status that no later attempt mends."""


def translated(error: Exception) -> Exception:
    """An error of a model as our loop knows it: `TransientError`, `ContextOverflow`, or the error itself."""
    if _is_too_long(error):
        return ContextOverflow(words(error))
    causes = list(error.exceptions) if isinstance(error, FallbackExceptionGroup) else [error]
    transient = [cause for cause in causes if _is_transient(cause)]
    if not transient:
        return error
    waits = [wait for cause in transient if (wait := _retry_after(cause)) is not None]
    return TransientError(words(error), retry_after=min(waits, default=None))


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, ModelHTTPError):
        return error.status_code in _TRANSIENT_STATUSES or error.status_code >= 500
    if isinstance(error, ModelAPIError):
        return not any(base.__name__ in _LASTING for base in type(error).__mro__)
    if isinstance(error, ConnectionError):
        return True
    bases = ((base.__module__.partition(".")[0], base.__name__) for base in type(error).__mro__)
    return any(module in _HTTP_CLIENTS and name == "TransportError" for module, name in bases)


def _is_too_long(error: BaseException) -> bool:
    if any(base.__name__ == "ModelContextWindowExceededError" for base in type(error).__mro__):
        return True
    if not isinstance(error, ModelHTTPError) or error.status_code not in (400, 413):
        return False
    said = str(error.body).lower()
    return any(phrase in said for phrase in _TOO_LONG)


def _retry_after(error: BaseException) -> float | None:
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
        return max(float(text), 0.0)
    except ValueError:
        pass
    try:
        return max((email.utils.parsedate_to_datetime(text) - timezone.now()).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None
