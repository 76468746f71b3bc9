"""The errors of providers, in the words of our loop."""

from pydantic_ai.exceptions import FallbackExceptionGroup, ModelAPIError, ModelHTTPError

from helix_sessions.agents import provider_errors
from helix_sessions.exceptions import ContextOverflow, TransientError
from helix_sessions.runtime.outcomes import words

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
    waits = [wait for cause in transient if (wait := provider_errors.retry_after(cause)) is not None]
    return TransientError(words(error), retry_after=min(waits, default=None))


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, ModelHTTPError):
        return provider_errors.is_transient_status(error.status_code)
    if isinstance(error, ModelAPIError):
        return not any(base.__name__ in _LASTING for base in type(error).__mro__)
    return provider_errors.is_of_the_network(error)


def _is_too_long(error: BaseException) -> bool:
    if any(base.__name__ == "ModelContextWindowExceededError" for base in type(error).__mro__):
        return True
    if not isinstance(error, ModelHTTPError) or error.status_code not in (400, 413):
        return False
    return provider_errors.says_too_long(str(error.body))
