"""The views of the page of troubles: the page, and its panels alone, for a page that renews itself."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.translation import gettext as _

from helix_sessions.admin.action import Action
from helix_sessions.admin.actions import ACTIONS
from helix_sessions.admin.base import stored
from helix_sessions.admin.dashboard import dashboard_context
from helix_sessions.admin.now.cause import Cause
from helix_sessions.admin.now.causes import approval_of
from helix_sessions.admin.now.page import now_page
from helix_sessions.admin.now.windows import window_of
from helix_sessions.admin.page_views import PageViews, call_actions
from helix_sessions.admin.pages import waits
from helix_sessions.models import BulkAction

Remedy = tuple[Action, str]


class NowViews(PageViews):
    """What goes wrong, what waits, and how the work goes."""

    def get_urls(self) -> list[URLPattern]:
        """The page and its panels, before the admin's own."""
        own = [
            self._path("waiting", "waiting/", self.waiting_view),
            self._path("now", "now/", self.now_view),
            self._path("now_panels", "now/panels/", self.panels_view),
            self._path("dashboard", "now/dashboard/", self.dashboard_view),
        ]
        return own + super().get_urls()

    def now_view(self, request: HttpRequest) -> HttpResponse:
        """The page by itself."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Now"),
            "media": self.media,
            **now_context(request),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/helix_sessions/now/page.html", context)

    def panels_view(self, request: HttpRequest) -> HttpResponse:
        """The panels alone."""
        request.current_app = self.admin_site.name
        response = TemplateResponse(request, "admin/helix_sessions/now/panels.html", now_context(request))
        response["Cache-Control"] = "no-store"
        return response

    def waiting_view(self, request: HttpRequest) -> HttpResponse:
        """Every session that waits, for whom, and since when."""
        page = waits.waiting_page(request.GET.get("after", ""), request.GET.get("tool", "")[:200])
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Waiting"),
            "media": self.media,
            "page": page,
            "call_actions": call_actions(request),
            "remedies": _remedies(request, approval_of(page.tool)) if page.has_approvals else [],
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/helix_sessions/session/waiting.html", context)

    def dashboard_view(self, request: HttpRequest) -> HttpResponse:
        """The numbers below the panels alone."""
        request.current_app = self.admin_site.name
        response = TemplateResponse(request, "admin/helix_sessions/dashboard.html", dashboard_context())
        response["Cache-Control"] = "no-store"
        return response


def now_context(request: HttpRequest) -> dict[str, Any]:
    """What the templates of the page need."""
    page = now_page(window_of(request.GET.get("window")))
    return {
        "now": page,
        "troubles": [(cause, _address(cause), _remedies(request, cause)) for cause in page.causes],
        "bulks": list(stored(BulkAction).unfinished().defer("failures").order_by("created_at")[:5]),
        "list_url": reverse("admin:helix_sessions_session_changelist"),
        "panels_url": reverse("admin:helix_sessions_session_now_panels") + f"?window={page.window.name}",
    }


def _address(cause: Cause) -> str:
    if cause.place:
        return f"{reverse('admin:helix_sessions_session_waiting')}?{cause.place}"
    return f"{reverse('admin:helix_sessions_session_changelist')}?{cause.query}"


def _remedies(request: HttpRequest, cause: Cause) -> list[Remedy]:
    """What this user may do about it, with the page of each action."""
    found = []
    for name in cause.remedies:
        action = ACTIONS.get(name)
        if action is not None and action.is_allowed(request):
            chosen = {"filter": cause.query} | ({"tool": cause.call} if cause.call else {})
            place = reverse("admin:helix_sessions_session_action", args=[name])
            found.append((action, f"{place}?{urlencode(chosen)}"))
    return found
