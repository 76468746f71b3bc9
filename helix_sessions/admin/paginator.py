"""Counts at the same cost for a thousand sessions and for a hundred million."""

from functools import cached_property
from typing import Any

from django.core.paginator import Paginator
from django.db import connections
from django.db.models import QuerySet

from helix_sessions.store.engine.dialect import dialect_of

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


class SortingPaginator(BoundedPaginator):
    """Sorts by columns that no index has as well: then the newest `COUNTED` rows, and no more."""

    newest = ("-created_at", "-session_id")

    def page(self, number: Any) -> Any:
        """A page of the rows in their order."""
        rows = self.object_list
        if self.is_bounded and not self.follows_an_index:
            newest = rows.order_by(*self.newest).values("pk")[:COUNTED]
            bounded = rows.model._default_manager.using(rows.db).filter(pk__in=newest)
            bounded.query.deferred_loading = rows.query.deferred_loading
            self.object_list = bounded.order_by(*rows.query.order_by)
        return super().page(number)

    @property
    def follows_an_index(self) -> bool:
        """Whether the database can read the rows in their order."""
        return tuple(self.object_list.query.order_by)[:1] in (("-created_at",), ("created_at",))


def bounded_count(rows: QuerySet[Any], limit: int = COUNTED) -> int:
    """How many rows there are, or `limit + 1` if there are more."""
    return rows.order_by()[: limit + 1].count()


def estimated_rows(rows: QuerySet[Any]) -> int | None:
    """The planner's estimate of the table's rows; `None` without one."""
    connection = connections[rows.db]
    name = connection.ops.quote_name(rows.model._meta.db_table)
    return dialect_of(connection).estimated_rows(connection, name)
