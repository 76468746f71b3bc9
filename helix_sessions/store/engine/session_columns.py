"""The columns of the session's row by what the store does with them. The model says it, with `column`."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from django.db import models

from helix_sessions.content import documents
from helix_sessions.models import Session
from helix_sessions.models.columns import Role, role_of
from helix_sessions.models.fields import DocumentField
from helix_sessions.store.engine.tables import table
from helix_sessions.types import SessionState

_FIELDS = table(Session).fields


def _columns(plays: Callable[[Role], bool]) -> tuple[str, ...]:
    return tuple(name for name, field in _FIELDS.items() if plays(role_of(field)))


def is_document(name: str) -> bool:
    """Whether the row has the column as the text of a JSON value."""
    return isinstance(_FIELDS[name], DocumentField)


def is_time(name: str) -> bool:
    return isinstance(_FIELDS[name], models.DateTimeField)


ALL_COLUMNS = table(Session).columns

LIGHT_COLUMNS = _columns(lambda role: role.read == "always")
"""What every write reads. Of the others it names those it needs."""

SAVED_COLUMNS = _columns(lambda role: role.saved)

BRANCHED_COLUMNS = _columns(lambda role: role.branched)

NOT_IMPORTED = _columns(lambda role: not role.imported)

MAPS = _columns(lambda role: role.is_map)

NAMING_SESSIONS = _columns(lambda role: role.names_sessions)

COMPOSED_COLUMNS = _columns(lambda role: role.composed)

STATE_COLUMNS = tuple(field.name for field in fields(SessionState) if field.name in _FIELDS)
"""What a caller sees of the row, by the same name."""

TEXTS_READ = tuple(
    name for name in LIGHT_COLUMNS if isinstance(_FIELDS[name], DocumentField | models.TextField)
)
"""Of what every write reads, what has no largest size."""


def _default(field: "models.Field[Any, Any]") -> Any:
    value = field.get_default() if field.has_default() else None
    return documents.write(value) if isinstance(field, DocumentField) and value is not None else value


DEFAULTS = {name: _default(field) for name, field in _FIELDS.items()}
"""Every column of a new row, documents as text."""
