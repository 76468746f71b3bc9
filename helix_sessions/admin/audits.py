"""The audit trail of the HTTP API, read-only."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from helix_sessions.admin import widgets
from helix_sessions.admin.base import stored
from helix_sessions.admin.filters import ColumnFilter, DaysFilter
from helix_sessions.admin.lists import ConsoleList
from helix_sessions.models import AuditEntry, Session
from helix_sessions.templatetags.helix_admin import session_url

LOOKED_AT = 1_000
"""Filters offer the values among the newest entries; any other value can be searched for."""


class NewestFilter(ColumnFilter):
    """The values of a column, as far as they are among the newest entries."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Each value once."""
        newest = stored(AuditEntry).newest_first().values_list(self.column, flat=True)[:LOOKED_AT]
        return [(value, value) for value in sorted(value for value in set(newest) if value is not None)]


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


class AuditEntryAdmin(ConsoleList):
    """The audit trail. Requests write entries, and `prune_sessions` deletes them by age."""

    list_display = ("when", "who", "action", "session", "outcome", "address", "request_id")
    list_display_links = ("when",)
    list_filter = (WhenFilter, WhoFilter, WhatFilter)
    ordering = ("-at", "-entry_id")
    search_fields = ("session_id", "actor")
    search_help_text = _("A whole session id, or the key of a user.")
    actions = None

    def ways_to_find(self, keys: Any, term: str) -> Iterable[Any]:
        """The session, or the user."""
        return keys.filter(session_id=term), keys.filter(actor=term)

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
        return widgets.when(entry.at)

    @admin.display(description=_("Who"))
    def who(self, entry: Any) -> SafeString:
        """The key of the user, and under it the name."""
        return format_html('{}<span class="hx-sub">{}</span>', entry.actor or "-", entry.actor_name)

    @admin.display(description=_("Session"))
    def session(self, entry: Any) -> SafeString:
        """The id; the session may be deleted by now."""
        if entry.session_id is None or not entry.is_linked:
            return format_html("{}", entry.session_id or "-")
        return format_html('<a href="{}">{}</a>', session_url(entry.session_id), entry.session_id)

    @admin.display(description=_("Outcome"))
    def outcome(self, entry: AuditEntry) -> SafeString:
        """The status of the response, and the code of a refusal."""
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
