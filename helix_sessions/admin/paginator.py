"""Counting that costs the same at a thousand sessions and at a hundred million."""

from functools import cached_property
from typing import Any

from django.core.paginator import Paginator
from django.db import connections
from django.db.models import QuerySet

COUNTED = 10_000
"""Rows beyond this are neither counted one by one nor paged to: a filter finds them sooner."""


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts exactly up to `COUNTED`; above, a whole table is estimated and a filtered one is "more than"."""

    object_list: QuerySet[Any]

    @cached_property
    def count(self) -> int:
        """The rows that can be paged to."""
        return min(self._counted, COUNTED)

    @property
    def is_bounded(self) -> bool:
        """Whether there are more rows than `count`."""
        return self._counted > COUNTED

    @property
    def estimate(self) -> int | None:
        """About how many rows there are, when they are too many to count and the database can tell."""
        return self._estimate if self.is_bounded else None

    @cached_property
    def _counted(self) -> int:
        if self._estimate is not None and self._estimate > 10 * COUNTED:
            return COUNTED + 1
        return bounded_count(self.object_list)

    @cached_property
    def _estimate(self) -> int | None:
        whole = self.object_list.model._default_manager.all()
        is_whole = self.object_list.query.where == whole.query.where
        return estimated_rows(self.object_list) if is_whole else None


def bounded_count(rows: QuerySet[Any], limit: int = COUNTED) -> int:
    """How many rows there are, or `limit + 1` if there are more."""
    return rows.order_by()[: limit + 1].count()


def estimated_rows(rows: QuerySet[Any]) -> int | None:
    """How many rows the planner believes the table has; `None` where it has no idea."""
    connection = connections[rows.db]
    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(%s)",
            [connection.ops.quote_name(rows.model._meta.db_table)],
        )
        [found] = cursor.fetchone() or [None]
    return found if found is not None and found >= 0 else None
