"""Opaque places in a listing."""

import base64
import binascii
import json
from datetime import UTC, datetime
from typing import Any

from helix_sessions.exceptions import InvalidCursor


def encode(listing: str, *place: Any) -> str:
    """A cursor of this listing behind the row with these sort values."""
    values = [value.isoformat() if isinstance(value, datetime) else value for value in place]
    return base64.urlsafe_b64encode(json.dumps([listing, *values]).encode()).decode().rstrip("=")


def decode(listing: str, cursor: Any, *types: type) -> list[Any]:
    """The sort values of a cursor of this listing, which have these types."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        name, *values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if name != listing or len(values) != len(types):
            raise InvalidCursor
        return [_value(value, kind) for value, kind in zip(values, types, strict=True)]
    except (TypeError, ValueError, OverflowError, binascii.Error, RecursionError):
        raise InvalidCursor from None


def _value(value: Any, kind: type) -> Any:
    if type(value) is not (str if kind is datetime else kind):
        raise InvalidCursor
    if kind is datetime:
        moment = datetime.fromisoformat(str(value))
        if moment.tzinfo is None:
            raise InvalidCursor
        return moment.astimezone(UTC)
    if isinstance(value, int) and abs(value) >= 2**63:
        raise InvalidCursor
    if isinstance(value, str) and "\x00" in value.encode().decode():
        raise InvalidCursor
    return value
