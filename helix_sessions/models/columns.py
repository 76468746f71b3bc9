"""What the store does with a column of the session's row, said where the column is declared.

The lists that reading, saving, branching, exporting and importing go by are derived from it, in
`store/engine/session_columns.py`.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from django.db import models

Read = Literal["always", "on request", "never"]
F = TypeVar("F", bound="models.Field[Any, Any]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The part a column plays."""

    read: Read = "always"
    """When a write reads it: what may be large `on request`, and `never` what is set but not looked at."""
    saved: bool = False
    """Whether a save writes it from the caller's `SessionState`, and a rewind puts it back."""
    branched: bool = False
    """Whether a branch of the session takes it over."""
    imported: bool = True
    """Whether it means something in another installation. If not, an import leaves it null."""
    is_map: bool = False
    """Whether the document is an object, or null."""
    names_sessions: bool = False
    """Whether session ids are in the document, which an import under new ids replaces."""
    composed: bool = False
    """Whether the store makes the document of parts of others, so that it may nest deeper than a caller's."""


_ROLES = "_helix_sessions_role"


def column(field: F, **role: Any) -> F:
    """The field, with what the store does with its column: the keywords of `Role`."""
    setattr(field, _ROLES, Role(**role))
    return field


def role_of(field: "models.Field[Any, Any]") -> Role:
    """What the store does with a column. One of which nothing was said is read by every write."""
    role: Role = getattr(field, _ROLES, Role())
    return role
