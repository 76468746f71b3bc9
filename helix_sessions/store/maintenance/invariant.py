"""An invariant of rows: a query for the rows that break it, or a function that looks for them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from django.db.backends.base.base import BaseDatabaseWrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """A query for the sessions that break it."""

    code: str
    sql: str
    repair: tuple[str, ...] = ()
    """Statements whose every parameter is the session's id."""
    severity: Literal["error", "warning"] = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The sessions to check, as a condition on a column."""

    sql: str
    params: tuple[str, ...]

    def on(self, column: str) -> str:
        return f"({column} {self.sql.format(column=column)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedFor:
    """An invariant that one query cannot tell: of documents, and of sessions that name others."""

    code: str
    look: Callable[[BaseDatabaseWrapper, Scope], Iterator[tuple[str, str]]]
    mend: Callable[[BaseDatabaseWrapper, str], None] | None = None
    severity: Literal["error", "warning"] = "error"


Check = Invariant | LookedFor
