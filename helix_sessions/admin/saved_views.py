"""Views of the session list: saved by an operator under a name, opened by any operator with the address."""

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from helix_sessions.admin.base import ModelAdmin, stored
from helix_sessions.admin.presentation import is_id
from helix_sessions.models import SavedView
from helix_sessions.store.engine.ids import new_id

PARAMETER = "view"
LONGEST_NAME = 80
LONGEST_QUERY = 2_000
MOST = 50
"""So many views one operator has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewLink:
    """A saved view in the line above the list."""

    view_id: str
    name: str
    address: str
    is_open: bool


def normal(query: str) -> str:
    """One text for query strings that mean the same; without a page, and without empty parameters."""
    pairs = [(name, value) for name, values in QueryDict(query).lists() for value in values if value]
    return urlencode(sorted(pair for pair in pairs if pair[0] not in (PARAMETER, "p", "e")))


class SavedViews(ModelAdmin):
    """Saves, opens and removes views."""

    def get_urls(self) -> list[URLPattern]:
        """The addresses that save and remove, before the admin's own."""
        save = self.admin_site.admin_view(require_POST(self.save_view_view))
        remove = self.admin_site.admin_view(require_POST(self.remove_view_view))
        return [
            path("views/save/", save, name="helix_sessions_session_save_view"),
            path("views/<str:view_id>/remove/", remove, name="helix_sessions_session_remove_view"),
            *super().get_urls(),
        ]

    def views_of(self, request: HttpRequest, address: str) -> list[ViewLink]:
        """The views of this operator by name; that with this address is open."""
        rows = stored(SavedView).filter(owner_id=request.user.pk).order_by("name")[:MOST]
        here = normal(address)
        return [
            ViewLink(
                view_id=row.view_id,
                name=row.name,
                address=f"?{PARAMETER}={row.view_id}",
                is_open=bool(here) and row.query == here,
            )
            for row in rows
        ]

    def open_view(self, request: HttpRequest) -> HttpResponse | None:
        """Lead to the filters of the view that the address names; `None` if it names none."""
        view_id = request.GET.get(PARAMETER)
        if view_id is None or not self.has_view_permission(request):
            return None
        found = stored(SavedView).filter(view_id=view_id).first() if is_id(view_id) else None
        if found is None:
            self.message_user(request, _("There is no such view any more."), messages.WARNING)
        return _to_list("" if found is None else found.query)

    def save_view_view(self, request: HttpRequest) -> HttpResponse:
        """Save the list as it is under a name; a view of the same name is replaced."""
        self._require_view(request)
        name = " ".join(request.POST.get("name", "").split())[:LONGEST_NAME]
        given = request.POST.get("query", "")
        query = normal(given) if len(given) <= LONGEST_QUERY else ""
        own = stored(SavedView).filter(owner_id=request.user.pk)
        if not name or not query or "\x00" in name:
            self.message_user(request, _("A view needs a name, and filters or a search."), messages.ERROR)
        elif own.exclude(name=name).count() >= MOST:
            self.message_user(request, _("You have %d views, and no room for more.") % MOST, messages.ERROR)
        else:
            values = {"query": query, "created_at": timezone.now()}
            made = {"view_id": new_id(), **values}
            own.update_or_create(owner_id=request.user.pk, name=name, defaults=values, create_defaults=made)
            self.message_user(request, _("Saved as “%s”.") % name, messages.SUCCESS)
        return _to_list(query)

    def remove_view_view(self, request: HttpRequest, view_id: str) -> HttpResponse:
        """Remove a view of one's own."""
        self._require_view(request)
        if not is_id(view_id):
            raise Http404
        own: Any = stored(SavedView).filter(owner_id=request.user.pk, view_id=view_id)
        if not own.delete()[0]:
            raise Http404
        self.message_user(request, _("The view was removed."), messages.SUCCESS)
        return _to_list("")

    def _require_view(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied


def _to_list(query: str) -> HttpResponseRedirect:
    address = reverse("admin:helix_sessions_session_changelist")
    return HttpResponseRedirect(f"{address}?{query}" if query else address)
