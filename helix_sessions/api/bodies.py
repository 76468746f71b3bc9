"""The body of a request: read once, up to a limit, as JSON."""

import json
from typing import Any, NoReturn

from rest_framework.exceptions import ParseError, UnsupportedMediaType
from rest_framework.request import Request

from helix_sessions.api.exceptions import BodyTooLarge, LengthRequired
from helix_sessions.conf import conf
from helix_sessions.exceptions import InvalidDocument

JSON_TYPE = "application/json"
JSON_PATCH_TYPE = "application/json-patch+json"


def read(request: Request, most: int | None = None, *, alone: bool = False) -> bytes:
    """The whole body, unless it is larger than `most` or than the setting allows; with `alone`, than `most`
    alone."""
    limit = conf.API_MAX_BODY_BYTES if most is None else min(most, conf.API_MAX_BODY_BYTES)
    if alone and most is not None:
        limit = most
    length = request.META.get("CONTENT_LENGTH") or ""
    if length.isdigit() and int(length) > limit:
        raise BodyTooLarge
    body: bytes = request.read(limit + 1)
    if len(body) > limit:
        raise BodyTooLarge
    if not body and not length and "HTTP_TRANSFER_ENCODING" in request.META:
        raise LengthRequired  # a WSGI request without a length has no body that could be read
    return body


def parse(request: Request, body: bytes, allowed: tuple[str, ...] = (JSON_TYPE,)) -> Any:
    """The JSON value of a body; no body is an empty object."""
    if not body:
        return {}
    given = (request.content_type or "").partition(";")[0].strip().lower()
    if given not in allowed:
        raise UnsupportedMediaType(given)
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidDocument("The body is nested too deeply.") from None
    except ValueError as error:
        raise ParseError(f"The body is not JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
