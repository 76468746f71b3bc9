"""What went wrong in a run, as its error says it."""

from typing import Any

from helix_sessions.messages import errors
from helix_sessions.runtime.outcomes import storable

TURN_LIMIT_EXCEEDED = "turn_limit_exceeded"
AGENT_RAISED = "agent_raised"
AGENT_FAILED = "agent_failed"
CONTEXT_UNAVAILABLE = "context_unavailable"
BUDGET_EXCEEDED = "budget_exceeded"
SPEND_LIMIT = "spend_limit"
CRASH_LOOP = "crash_loop"
TIMEOUT = "timeout"


def document(code: str, message: str | BaseException, *, attempt: int | None = None) -> dict[str, Any]:
    """The error of a run: `{code, message, type, attempt, fingerprint}`."""
    if isinstance(message, BaseException):
        name = type(message).__name__
        return errors.document(code, storable(str(message) or name), type=name, attempt=attempt)
    return errors.document(code, storable(message), attempt=attempt)


def code_of(error: BaseException) -> str:
    """The code of what an agent raised."""
    if isinstance(error, TimeoutError):
        return TIMEOUT
    return AGENT_RAISED
