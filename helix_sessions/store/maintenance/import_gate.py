"""Validates the records of an export as strictly as every other way in, on every database.

PostgreSQL would refuse some invalid values and SQLite none, so neither is relied upon.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from django.db import models

from helix_sessions.content import documents
from helix_sessions.exceptions import HelixSessionsError, InvalidDocument, InvalidExport, InvalidInput
from helix_sessions.models import (
    Checkpoint,
    Event,
    EventKey,
    Input,
    Message,
    Session,
    StagedChange,
    StateSnapshot,
)
from helix_sessions.models.fields import DocumentField, IdField
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.session_columns import COMPOSED_COLUMNS, MAPS, SAVED_COLUMNS
from helix_sessions.store.engine.tables import table
from helix_sessions.writes import parse_writes

_WRAPPED = {
    *((Checkpoint, "frame"), (Event, "data"), (EventKey, "record")),
    *((Session, name) for name in COMPOSED_COLUMNS),
}
"""Documents that the store composes of others."""


def admit(kind: str, model: type[models.Model], columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a record with times and owner parsed, or `InvalidExport`. Documents stay text."""
    key, admitted = table(model).key, dict(columns)
    values: dict[str, Any] = {}
    for name, field in _documents_last(model):
        value = columns[name]
        try:
            if value is None:
                values[name] = None
            elif isinstance(field, DocumentField):
                values[name] = documents.load_foreign(value, wrapped=_is_wrapped(model, name, values))
            else:
                values[name] = admitted[name] = _scalar(key, field, value)
        except (HelixSessionsError, TypeError, ValueError) as error:
            raise InvalidExport(f"The {name} of a {kind} cannot come in: {error}") from None
    try:
        _check_row(model, values)
    except HelixSessionsError as error:
        raise InvalidExport(f"A {kind} cannot come in: {error}") from None
    return admitted


@cache
def _documents_last(model: type[models.Model]) -> list[tuple[str, "models.Field[Any, Any]"]]:
    return sorted(table(model).fields.items(), key=lambda item: isinstance(item[1], DocumentField))


def _is_wrapped(model: type[models.Model], column: str, values: Mapping[str, Any]) -> bool:
    """Whether a document is composed of others. The writes of a state have parts of it."""
    return (model, column) in _WRAPPED or (model is StateSnapshot and values["base"] != values["number"])


def _scalar(key: tuple[str, ...], field: "models.Field[Any, Any]", value: Any) -> Any:
    name = field.attname
    if isinstance(field, models.DateTimeField):
        return value if isinstance(value, datetime) else inputs.moment(datetime.fromisoformat(value), name)
    if isinstance(field, models.BooleanField):
        return inputs.flag(value, name)
    if isinstance(field, models.IntegerField):
        return _countable(name, inputs.integer(value, name, minimum=-inputs.MAX_INTEGER))
    if name in key:
        return inputs.identifier(value, name, limit=field.max_length or inputs.MAX_ID)
    if isinstance(field, models.ForeignKey):
        return inputs.owner_key(value)
    return inputs.text(value, name, limit=field.max_length if isinstance(field, IdField) else None)


def _countable(name: str, value: int) -> int:
    """A number that can still be incremented. What callers save may be any."""
    if name not in SAVED_COLUMNS and abs(value) > inputs.MAX_INTEGER // 2:
        raise InvalidInput(f"{inputs.shown(value)} is out of range")
    return value


def _check_row(model: type[models.Model], values: Mapping[str, Any]) -> None:
    """Check the shape that readers of a document rely on."""
    if model is Session:
        _check_searched(values)
        for name in MAPS:
            inputs.optional_mapping(values[name], name)
    elif model is Checkpoint:
        if not isinstance(values["frame"], dict):
            raise InvalidDocument("The frame of a checkpoint must be an object.")
        _check_searched(values["frame"])
    elif model is Message:
        content = values["content"]
        if not isinstance(content, dict) or content.get("role") != values["role"]:
            raise InvalidDocument("A message must be an object with its role.")
    elif model is StateSnapshot:
        if values["base"] != values["number"]:
            parse_writes(values["document"])
        elif not isinstance(values["document"], dict):
            raise InvalidDocument("A state must be an object.")
    elif model is StagedChange:
        parse_writes(values["writes"])
    elif model is Input and not isinstance(values["prompt"], str | dict):
        raise InvalidDocument("A prompt is a string or an object.")


def _check_searched(values: Mapping[str, Any]) -> None:
    """Check the columns that operators filter by."""
    tags = values.get("tags")
    if not isinstance(tags, list):
        raise InvalidInput("tags must be a list of strings.")
    inputs.tags(tags)
    inputs.metadata(values.get("metadata"))
