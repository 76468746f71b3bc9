"""An invariant of rows: a query for the rows that break it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """A query for the sessions that break it."""

    code: str
    sql: str
    repair: tuple[str, ...] = ()
    """Statements whose every parameter is the session's id."""
    severity: Literal["error", "warning"] = "error"
