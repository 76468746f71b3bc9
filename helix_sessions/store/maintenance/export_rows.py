"""Writes a row of a session as a line of JSON, and reads it. Documents are the stored text, never parsed.

A line has the row's kind and the columns that are not null. `LAYOUT` is the version of this format.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NoReturn

from django.db import models

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidExport
from helix_sessions.models import BlobRef
from helix_sessions.models.fields import DocumentField
from helix_sessions.store.engine.session_tables import exported_tables, kind_of
from helix_sessions.store.engine.tables import table

FORMAT = "helix_sessions.export"
LAYOUT = 1


def header() -> str:
    """The first line of an export."""
    return documents.write({"format": FORMAT, "layout": LAYOUT})


def check_header(line: str) -> None:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InvalidExport("This is not an export of sessions.")
    if value.get("layout") != LAYOUT:
        raise InvalidExport(f"This export has layout {value.get('layout')!r:.40}; {LAYOUT} is understood.")


@cache
def tables() -> dict[str, type[models.Model]]:
    """The tables of an export, by kind."""
    return {kind_of(model): model for model in exported_tables() if model is not BlobRef}


def write(kind: str, columns: Sequence[str], values: Sequence[Any]) -> str:
    """The line of a row whose documents are text."""
    fields = table(tables()[kind]).fields
    parts = [f'"kind":"{kind}"']
    for name, value in zip(columns, values, strict=True):
        if value is None:
            continue
        if isinstance(fields[name], DocumentField):
            written = value.replace("\n", " ")  # between tokens: a JSON string cannot contain one
        elif isinstance(value, datetime):
            written = f'"{value.isoformat()}"'
        else:
            written = documents.write(value if isinstance(value, str | int) else str(value))
        parts.append(f'"{name}":{written}')
    return f"{{{','.join(parts)}}}"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse).raw_decode


def split(line: str) -> dict[str, str]:
    """The values of a line by name, each as its JSON text."""
    found: dict[str, str] = {}
    place = 1
    try:
        if line[0] != "{":
            raise ValueError("not an object")
        while True:
            name, colon = _decode(line, place)
            if not isinstance(name, str) or line[colon] != ":":
                raise ValueError("not an object")
            _, place = _decode(line, colon + 1)
            found[name] = line[colon + 1 : place]
            if line[place:] == "}":
                return found
            if line[place] != ",":
                raise ValueError("not an object")
            place += 1
    except (ValueError, IndexError, RecursionError) as error:
        raise InvalidExport(f"This is not a record: {error}") from None


def read(kind: str, found: Mapping[str, str]) -> dict[str, Any]:
    """The columns of a row, documents as text. A column that an older export lacks gets its default."""
    model = tables()[kind]
    fields = table(model).fields
    unknown = set(found) - set(fields) - {"kind"}
    if unknown:
        raise InvalidExport(
            f"A {kind} has no column {sorted(unknown)[0]!r:.80}; was this made by a newer version?"
        )
    return {name: _column(kind, field, found.get(name)) for name, field in fields.items()}


def _column(kind: str, field: "models.Field[Any, Any]", text: str | None) -> Any:
    if text is None:
        if field.null:
            return None
        if not field.has_default():
            raise InvalidExport(f"A {kind} lacks its {field.attname}.")
        value = field.get_default()
        return documents.write(value) if isinstance(field, DocumentField) else value
    return text if isinstance(field, DocumentField) else json.loads(text)
