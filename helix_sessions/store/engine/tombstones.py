"""Sessions that were deleted by decision: the row stays, with a status of its own, and counts as absent.

`Session.objects` leaves them out; SQL of the store's own says `present`. Who has to see them, because a key
is taken or rows have to go for good, asks for them by name.
"""

from typing import Any, Final

from helix_sessions.types import TOMBSTONE

GONE: Final[Any] = object()
"""As a status: tombstones. No word asks for them, because to callers of the store they are not there."""


def present(prefix: str = "") -> str:
    """The condition that a session's row is no tombstone."""
    return f"{prefix}\"status\" <> '{TOMBSTONE}'"
