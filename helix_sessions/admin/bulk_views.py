"""The views of actions on all sessions of a filter: the page that asks, the progress, and the stop button."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from helix_sessions.admin import bulk, presentation
from helix_sessions.admin.action import Action
from helix_sessions.admin.actions import ACTIONS
from helix_sessions.admin.base import store, stored
from helix_sessions.admin.forms import focus
from helix_sessions.admin.now_views import NowViews
from helix_sessions.admin.operations import COLUMNS
from helix_sessions.admin.paginator import COUNTED, bounded_count
from helix_sessions.models import BulkAction
from helix_sessions.store.maintenance import bulk_actions

LISTED = 20
AT_ONCE_SECONDS = 1.5
"""So long a request works on it itself."""


class BulkViews(NowViews):
    """Actions on all sessions of a filter."""

    def get_urls(self) -> list[URLPattern]:
        """The pages, before the admin's own."""
        own = [
            self._path("bulk_list", "bulk/", self.bulk_list_view),
            self._path("bulk", "bulk/<str:bulk_id>/", self.bulk_view),
            self._path("bulk_panel", "bulk/<str:bulk_id>/panel/", self.bulk_panel_view),
            self._path("bulk_advance", "bulk/<str:bulk_id>/advance/", require_POST(self.bulk_advance_view)),
            self._path("bulk_stop", "bulk/<str:bulk_id>/stop/", require_POST(self.bulk_stop_view)),
        ]
        return own + super().get_urls()

    def bulk_confirm(
        self, request: HttpRequest, action: Action, query: str, *, form: Any = None
    ) -> HttpResponse:
        """What will happen to how many sessions of a filter."""
        query = bulk.cleaned(query)
        try:
            rows = bulk.matching(request.user, query)
        except bulk.BadFilter:
            raise Http404 from None
        count = bounded_count(rows)
        first = list(rows.only(*COLUMNS)[:LISTED])
        initial = {name: request.GET[name] for name in ("tool", "model") if name in request.GET}
        form, status = (form, 422) if form is not None else (action.form(initial=initial), 200)
        focus(form, filled=initial)
        refusals = [action.refusal(session) for session in first]
        context = {
            **self._page_context(request, str(action.label)),
            "action": action,
            "query": query,
            "list_address": f"{reverse('admin:helix_sessions_session_changelist')}?{query}",
            "promise": action.promised(min(count, COUNTED)),
            "count": min(count, COUNTED),
            "is_bounded": count > COUNTED,
            "sessions": [
                (session, presentation.status_chip(session.status), refusal)
                for session, refusal in zip(first, refusals, strict=True)
            ],
            "unlisted": max(min(count, COUNTED) - LISTED, 0),
            "left": sum(map(bool, refusals)),
            "form": form,
        }
        return TemplateResponse(request, "admin/helix_sessions/bulk/confirm.html", context, status=status)

    def bulk_begin(self, request: HttpRequest, action: Action, query: str) -> HttpResponse:
        """Note the action, and begin with it."""
        form = action.form(request.POST)
        if not form.is_valid():
            return self.bulk_confirm(request, action, query, form=form)
        answers = {name: request.POST.get(name, "") for name in form.fields}
        try:
            row = bulk.begin(request, action.name, bulk.cleaned(query), answers)
        except bulk.BadFilter:
            raise Http404 from None
        bulk.advance(row.bulk_id, seconds=AT_ONCE_SECONDS)
        return HttpResponseRedirect(reverse("admin:helix_sessions_session_bulk", args=[row.bulk_id]))

    def bulk_list_view(self, request: HttpRequest) -> HttpResponse:
        """The newest of them."""
        rows = stored(BulkAction).defer("failures", "answers").order_by("-created_at")[:50]
        context = {
            **self._page_context(request, _("Background actions")),
            "items": [(row, ACTIONS.get(row.action)) for row in rows],
        }
        return TemplateResponse(request, "admin/helix_sessions/bulk/list.html", context)

    def bulk_view(self, request: HttpRequest, bulk_id: str) -> HttpResponse:
        """How far one has come."""
        return TemplateResponse(
            request, "admin/helix_sessions/bulk/page.html", self._bulk_context(request, bulk_id)
        )

    def bulk_panel_view(self, request: HttpRequest, bulk_id: str) -> HttpResponse:
        """The same without the page around it."""
        response = TemplateResponse(
            request, "admin/helix_sessions/bulk/panel.html", self._bulk_context(request, bulk_id)
        )
        response["Cache-Control"] = "no-store"
        return response

    def bulk_advance_view(self, request: HttpRequest, bulk_id: str) -> HttpResponse:
        """Go on with it here, for as long as a request may take."""
        row = self._bulk(bulk_id)
        self._check_bulk(request, row)
        bulk.advance(row.bulk_id, seconds=AT_ONCE_SECONDS)
        return HttpResponseRedirect(reverse("admin:helix_sessions_session_bulk", args=[row.bulk_id]))

    def bulk_stop_view(self, request: HttpRequest, bulk_id: str) -> HttpResponse:
        """End it after the batch under way."""
        row = self._bulk(bulk_id)
        self._check_bulk(request, row)
        if bulk_actions.stop(store().using, row.bulk_id):
            self.message_user(request, _("It stops after the sessions it is at."), messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:helix_sessions_session_bulk", args=[row.bulk_id]))

    def _bulk(self, bulk_id: str) -> BulkAction:
        row: BulkAction | None = (
            stored(BulkAction).filter(bulk_id=bulk_id).first() if presentation.is_id(bulk_id) else None
        )
        if row is None:
            raise Http404
        return row

    def _check_bulk(self, request: HttpRequest, row: BulkAction) -> None:
        """Only a user who may take the action drives or stops it."""
        action = ACTIONS.get(row.action)
        if action is None or not action.is_allowed(request):
            raise PermissionDenied

    def _bulk_context(self, request: HttpRequest, bulk_id: str) -> dict[str, Any]:
        row = self._bulk(bulk_id)
        action = ACTIONS.get(row.action)
        seen = row.done + row.failed
        return {
            **self._page_context(request, str(action.label if action else row.action)),
            "bulk": row,
            "action": action,
            "reason": row.answers.get("reason", "") if isinstance(row.answers, dict) else "",
            "is_open": row.ended_at is None,
            "is_bounded": row.expected > COUNTED,
            "share": 100.0 if row.state == "done" else min(100.0, 100 * seen / (row.expected or 1)),
            "list_address": f"{reverse('admin:helix_sessions_session_changelist')}?{row.query}",
            "may_drive": action is not None and action.is_allowed(request),
            "panel_url": reverse("admin:helix_sessions_session_bulk_panel", args=[row.bulk_id]),
        }

    def _page_context(self, request: HttpRequest, title: str) -> dict[str, Any]:
        request.current_app = self.admin_site.name
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": title,
        }
