"""The page of workers."""

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _

from helix_sessions.admin.base import ModelAdmin
from helix_sessions.admin.workers import workers


class WorkerViews(ModelAdmin):
    """Who drives what."""

    def get_urls(self) -> list[URLPattern]:
        """The page, before the admin's own."""
        view = self.admin_site.admin_view(self.workers_view)
        return [path("workers/", view, name="helix_sessions_session_workers"), *super().get_urls()]

    def workers_view(self, request: HttpRequest) -> HttpResponse:
        """Every worker, and the sessions it drives."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Workers"),
            "media": self.media,
            "workers": workers(timezone.now()),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/helix_sessions/session/workers.html", context)
