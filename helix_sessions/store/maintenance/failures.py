"""How jobs over many sessions tell of one that failed."""

import logging

from helix_sessions.exceptions import HelixSessionsError


def report(log: logging.Logger, what: str, error: Exception) -> None:
    """Log a failure by ids and codes. What an error of a provider or a driver says may quote what people
    wrote, so only its type is told, and the rest at the level of debugging."""
    if isinstance(error, HelixSessionsError):
        log.error("%s: %s (%s)", what, error, error.code)
    else:
        log.error("%s: %s", what, type(error).__name__)
        log.debug("%s", what, exc_info=error)
