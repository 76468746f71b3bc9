"""Values of the store as JSON responses."""

import json
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from django.http import HttpResponse

from helix_sessions.types import EventTexts, MessageTexts

JSON_TYPE = "application/json"


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _names(type(value))}
    return str(value)  # the key of a user may be anything


_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_plain
).encode


def etag(version: int) -> str:
    """The entity tag of a session's version."""
    return f'"{version}"'


def text_response(
    text: str, *, status: int = 200, version: int | None = None, headers: dict[str, str] | None = None
) -> HttpResponse:
    """A JSON text; with a version, it is tagged with it."""
    response = HttpResponse(text.encode(), status=status, content_type=JSON_TYPE, headers=headers)
    if version is not None:
        response["ETag"] = etag(version)
    return response


def json_response(
    value: Any, *, status: int = 200, version: int | None = None, headers: dict[str, str] | None = None
) -> HttpResponse:
    """A value, the values of the store included."""
    return text_response(_encode(value), status=status, version=version, headers=headers)


def no_content(version: int | None = None) -> HttpResponse:
    headers = {} if version is None else {"ETag": etag(version)}
    return HttpResponse(status=204, headers=headers)


def messages_text(page: MessageTexts) -> str:
    """A page of messages, joined from the stored texts."""
    cursor = _encode(page.next_cursor)
    return f'{{"items":[{",".join(page.texts)}],"total":{page.total},"next_cursor":{cursor}}}'


def events_text(page: EventTexts) -> str:
    """A page of events, joined from the stored texts."""
    return f'{{"items":[{",".join(page.texts)}],"next_cursor":{_encode(page.next_cursor)}}}'
