"""Read-only lists, fast however many rows there are."""

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from helix_sessions.admin import presentation
from helix_sessions.admin.base import ModelAdmin
from helix_sessions.admin.paginator import BoundedPaginator

FOUND_BY_EACH = 500
"""A search shows the first rows found by each of its ways."""


class ConsoleList(ModelAdmin):
    """No counting of everything, no sorting but by index, no writing."""

    list_per_page = 50
    list_max_show_all = 0
    sortable_by: ClassVar[tuple[str, ...]] = ()
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = BoundedPaginator

    class Media:
        css = {"all": ["helix_sessions/console.css"]}

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Rows are created elsewhere."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Changes are actions, each with a permission of its own."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only the store deletes: the admin's own way would leave rows behind."""
        return False

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By index alone."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if not presentation.is_id(term):
            return queryset.none(), False
        keys = queryset.order_by(*self.ordering or ()).values_list("pk", flat=True)
        found = {key for way in self.ways_to_find(keys, term) for key in way[:FOUND_BY_EACH]}
        return queryset.filter(pk__in=found), False

    def ways_to_find(self, keys: Any, term: str) -> Iterable[Any]:
        """The keys that a search finds, in the list's order or another that an index has."""
        raise NotImplementedError
