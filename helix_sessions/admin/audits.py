"""The audit trail of the HTTP API: found and read, never changed."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from helix_sessions.admin import pieces, sight
from helix_sessions.admin.base import ModelAdmin
from helix_sessions.admin.filters import DaysFilter
from helix_sessions.admin.paginator import BoundedPaginator
from helix_sessions.models import AuditEntry, Session
from helix_sessions.templatetags.helix_admin import session_url

LOOKED_AT = 1_000
"""Filters offer what is among the newest entries; any other value can be searched for."""
FOUND_BY_EACH = 500
"""A search shows the newest entries found by each of its ways."""


class NewestFilter(admin.SimpleListFilter):
    """The values of a column, as far as they are among the newest entries."""

    column: str

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Each value once."""
        newest = AuditEntry.objects.newest_first().values_list(self.column, flat=True)[:LOOKED_AT]
        return [(value, value) for value in sorted(value for value in set(newest) if value is not None)]

    def has_output(self) -> bool:
        """A value given in the address is honoured even when there are none to show."""
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The entries with the chosen value."""
        value = self.value()
        if not value:
            return queryset
        return queryset.filter(**{self.column: value}) if sight.is_id(value) else queryset.none()


class WhoFilter(NewestFilter):
    """`?who=7`"""

    title = _("user")
    parameter_name = "who"
    column = "actor"


class WhatFilter(NewestFilter):
    """`?what=POST api/sessions`"""

    title = _("request")
    parameter_name = "what"
    column = "action"


class WhenFilter(DaysFilter):
    """`?from=2026-01-01&to=2026-01-31`"""

    title = _("day")
    column = "at"
    parameters = ("from", "to")


class AuditEntryAdmin(ModelAdmin):
    """Who did what through the HTTP API."""

    list_display = ("when", "who", "action", "session", "outcome", "address", "request_id")
    list_display_links = ("when",)
    list_filter = (WhenFilter, WhoFilter, WhatFilter)
    list_per_page = 50
    list_max_show_all = 0
    sortable_by = ()
    ordering = ("-at", "-entry_id")
    search_fields = ("session_id", "actor")
    search_help_text = _("A whole session id, or the key of a user.")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = BoundedPaginator
    actions = None

    class Media:
        css = {"all": ["helix_sessions/console.css"]}

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Requests make entries."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What was done stays done."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Entries go by age alone, with `prune_sessions`."""
        return False

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By index alone: the session, or the user."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if not sight.is_id(term):
            return queryset.none(), False
        rows = queryset.order_by("-at", "-entry_id").values_list("pk", flat=True)
        ways = (rows.filter(session_id=term), rows.filter(actor=term))
        return queryset.filter(pk__in={key for way in ways for key in way[:FOUND_BY_EACH]}), False

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """A page of entries, with the names of their users as far as there are such users."""
        page = super().get_changelist_instance(request)
        page.result_list = list(page.result_list)
        names = _names({entry.actor for entry in page.result_list if entry.actor is not None})
        is_linked = self.admin_site.is_registered(Session) and request.user.has_perm(
            "helix_sessions.view_session"
        )
        for entry in page.result_list:
            entry.actor_name, entry.is_linked = names.get(entry.actor, ""), is_linked
        return page

    @admin.display(description=_("When"))
    def when(self, entry: AuditEntry) -> SafeString:
        """How long ago."""
        return pieces.when(entry.at)

    @admin.display(description=_("Who"))
    def who(self, entry: Any) -> SafeString:
        """The key of the user, and under it the name."""
        return format_html('{}<span class="hx-sub">{}</span>', entry.actor or "-", entry.actor_name)

    @admin.display(description=_("Session"))
    def session(self, entry: Any) -> SafeString:
        """The id; it may be gone by now."""
        if entry.session_id is None or not entry.is_linked:
            return format_html("{}", entry.session_id or "-")
        return format_html('<a href="{}">{}</a>', session_url(entry.session_id), entry.session_id)

    @admin.display(description=_("Outcome"))
    def outcome(self, entry: AuditEntry) -> SafeString:
        """The status of the answer, and why it was refused."""
        return format_html('{}<span class="hx-sub">{}</span>', entry.status, entry.code or "")


def entries_of(session_id: str) -> str:
    """The address of the entries about a session."""
    return f"{reverse('admin:helix_sessions_auditentry_changelist')}?{urlencode({'q': session_id})}"


def _names(actors: Iterable[str]) -> dict[str, str]:
    users = get_user_model()
    keys = []
    for actor in actors:
        try:
            keys.append(users._meta.pk.to_python(actor))
        except ValidationError:
            continue
    found = users._default_manager.filter(pk__in=keys)
    return {str(user.pk): user.get_username() for user in found}
