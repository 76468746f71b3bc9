"""Pages of listings, and the opaque cursors that lead from one to the next (keyset pagination)."""

import base64
import binascii
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.db.models import Model, QuerySet

from helix_sessions.exceptions import InvalidCursor
from helix_sessions.store.engine import inputs
from helix_sessions.types import Page

M = TypeVar("M", bound=Model)
T = TypeVar("T")

_MOST_ROWS = inputs.MAX_INTEGER // 4


class Pager:
    """Pages of a listing in the order of one numbered column. The arguments of the caller are checked first,
    before anything is read."""

    def __init__(
        self, listing: str, column: str, *, limit: Any, cursor: Any, newest_first: bool = False
    ) -> None:
        self._listing = listing
        self._column = column
        self._limit = min(inputs.integer(limit, "limit", minimum=1), _MOST_ROWS)
        self._order = f"-{column}" if newest_first else column
        self._after = None if cursor is None else decode(listing, cursor, int)[0]
        self._follows = f"{column}__{'lt' if newest_first else 'gt'}"

    def read(self, rows: QuerySet[M], *, skip: int = 0) -> tuple[list[M], str | None]:
        """The rows of the page, and the cursor of the next page; `None` if this is the last."""
        rows = rows.order_by(self._order)
        if self._after is not None:
            rows = rows.filter(**{self._follows: self._after})
        first = min(skip, _MOST_ROWS)
        found = list(rows[first : first + self._limit + 1])
        page = found[: self._limit]
        is_last = len(found) == len(page)
        return page, None if is_last else encode(self._listing, getattr(page[-1], self._column))

    def page(self, rows: QuerySet[M], value_of: Callable[[M], T]) -> Page[T]:
        """The page as values."""
        found, next_cursor = self.read(rows)
        return Page(items=[value_of(row) for row in found], next_cursor=next_cursor)


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
