"""The page of workers: who drives sessions now, by their leases."""

from dataclasses import dataclass, field
from datetime import datetime

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _

from helix_sessions.admin import presentation
from helix_sessions.admin.base import ModelAdmin, stored
from helix_sessions.models import Session

READ = 2_000
"""So many of the newest running sessions are looked at."""
SHOWN = 10
"""So many sessions of a worker are named; the rest are counted."""

_COLUMNS = (*presentation.LIST_COLUMNS, "lease_owner", "lease_expires_at")


@dataclass(slots=True, kw_only=True)
class Worker:
    """An owner of leases."""

    name: str
    until: datetime
    """When the last of its leases runs out, unless it is renewed."""
    count: int = 0
    stuck: int = 0
    sessions: list[Session] = field(default_factory=list)

    @property
    def unlisted(self) -> int:
        """How many of its sessions are not named."""
        return self.count - len(self.sessions)


def workers(now: datetime) -> tuple[list[Worker], bool]:
    """The owners of live leases on running sessions, those with most first; and whether there may be more.
    One query, by the index of running sessions."""
    rows = list(stored(Session).running().leased().newest_first().only(*_COLUMNS)[: READ + 1])
    found: dict[str, Worker] = {}
    for session in rows[:READ]:
        until = session.lease_expires_at or now
        worker = found.setdefault(
            str(session.lease_owner), Worker(name=str(session.lease_owner), until=until)
        )
        worker.count += 1
        worker.until = max(worker.until, until)
        worker.stuck += presentation.is_stuck(session, now)
        if len(worker.sessions) < SHOWN:
            worker.sessions.append(session)
    return sorted(found.values(), key=lambda worker: (-worker.count, worker.name)), len(rows) > READ


class WorkerViews(ModelAdmin):
    """Who drives what."""

    def get_urls(self) -> list[URLPattern]:
        """The page, before the admin's own."""
        view = self.admin_site.admin_view(self.workers_view)
        return [path("workers/", view, name="helix_sessions_session_workers"), *super().get_urls()]

    def workers_view(self, request: HttpRequest) -> HttpResponse:
        """Every worker that drives a session, and the sessions."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        found, is_cut = workers(timezone.now())
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Workers"),
            "media": self.media,
            "workers": found,
            "is_cut": is_cut,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/helix_sessions/session/workers.html", context)
