"""How a tool of an agent is executed."""

from dataclasses import dataclass
from typing import Any, Literal

from helix_sessions.exceptions import InvalidInput
from helix_sessions.values import response_schemas


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """What is said of a tool besides its function. `None` is what the agent itself declares."""

    approval: bool | Literal["participant"] | None = None
    """Whether a call waits for an approval; `participant`: a participant of the session may give it."""
    client: bool | None = None
    """Whether a client answers the call."""
    timeout: float | None = None
    """Seconds a call may take."""
    retries: int = 0
    """How often a call that failed is made again, under the same idempotency key. A tool that says so is
    idempotent by declaration, and is executed again after a crash too."""
    keep_output: bool = False
    """Keep the whole of a long output in the transcript; only the context is cut."""
    response_schema: dict[str, Any] | None = None
    """The JSON Schema that the result of a client must fit."""

    def __post_init__(self) -> None:
        if self.approval not in (None, False, True, "participant"):
            raise InvalidInput("approval of a tool must be True, False, 'participant' or None.")
        if self.client not in (None, False, True):
            raise InvalidInput("client of a tool must be True, False or None.")
        timeout = self.timeout
        if timeout is not None and (
            isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0
        ):
            raise InvalidInput("timeout of a tool must be a number of seconds above 0.")
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise InvalidInput("retries of a tool must be a number that is not negative.")
        if self.response_schema is not None:
            response_schemas.check(self.response_schema)
