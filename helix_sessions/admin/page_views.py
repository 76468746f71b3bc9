"""The read-only views of one session."""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from helix_sessions.admin import audits, decryption, presentation
from helix_sessions.admin.action import Action
from helix_sessions.admin.actions import ACTIONS
from helix_sessions.admin.base import ModelAdmin, store, stored
from helix_sessions.admin.documents import masked, shown
from helix_sessions.admin.pages import (
    contexts,
    inbox,
    overview,
    runs,
    states,
    timeline,
    tree,
    waiting,
    waits,
    waterfall,
)
from helix_sessions.exceptions import HelixSessionsError, NotFound
from helix_sessions.models import AuditEntry, Session
from helix_sessions.types import FEEDBACK_RATINGS

PAGES = ("timeline", "trace", "state", "context", "runs", "inbox", "tree", "staging", "calls", "log")

HEADER_COLUMNS = (
    *presentation.LIST_COLUMNS,
    "root_session_id",
    "forked_from_session_id",
    "forked_from_checkpoint_id",
    "owner_id",
    "tags",
    "metadata",
    "mode",
    "error",
    "error_fingerprint",
    "runnable_at",
    "run_requested",
    "attempts",
    "retry_attempt",
    "failure_reason",
    "interrupt_context",
    "interrupt_reason",
    "pending_client_tool_calls",
    "suspended_awaiting_children",
    "version",
    "head_seq",
    "first_seq",
    "step_count",
    "resume_count",
    "staged_count",
    "pending_inputs",
    "fence",
    "lease_owner",
    "lease_expires_at",
    "usage",
    "tracing_context",
    "checkpoint_id",
    "checkpointed_at",
)

View = Callable[..., HttpResponse]


class PageViews(ModelAdmin):
    """The pages of a session, under one header."""

    def get_urls(self) -> list[URLPattern]:
        """The pages of a session, before the admin's own."""
        own = [self._page(name) for name in PAGES]
        own += [
            self._path(
                "feedback", "<str:object_id>/feedback/<int:position>/", require_POST(self.feedback_view)
            ),
            self._path("live", "<str:object_id>/live/", self.live_view),
            self._path("raw", "<str:object_id>/raw/<str:what>/", self.raw_view),
        ]
        return own + super().get_urls()

    def _page(self, name: str) -> URLPattern:
        return self._path(name, f"<str:object_id>/{name}/", getattr(self, f"{name}_view"))

    def _path(self, name: str, route: str, view: View) -> URLPattern:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not self.has_view_permission(request):
                raise PermissionDenied
            return view(request, *args, **kwargs)

        return path(route, self.admin_site.admin_view(guarded), name=f"helix_sessions_session_{name}")

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The address the admin knows a session by: its timeline."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return self.timeline_view(request, object_id)

    def timeline_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Everything that happened, on one axis."""
        session = self._session(object_id)
        if session is None:
            return self._gone(request, object_id)
        page = timeline.timeline(session, timeline.View.of(request.GET))
        return self._render(request, session, "timeline", {"page": page, "stream_url": _stream(session)})

    def trace_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """A run as a waterfall."""
        session = self._session(object_id)
        if session is None:
            return self._gone(request, object_id)
        found = waterfall.waterfall(session, timeline.number(request.GET.get("run")))
        return self._render(request, session, "trace", {"trace": found})

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What happened after an event, as a piece of the timeline, and the header as it is now."""
        session = self._session(object_id)
        after = timeline.View.of(request.GET).after
        if session is None or after is None:
            raise Http404
        entries = timeline.newer_entries(session, after) if after < session.head_seq else []
        seqs = [entry.seq for entry in entries]
        seqs += [e.seq for entry in entries for call in entry.calls for e in call.events]
        context = {
            **self._header(request, session),
            "entries": entries,
            "last_seq": max(seqs, default=after),
        }
        response = TemplateResponse(request, "admin/helix_sessions/session/live.html", context)
        response["Cache-Control"] = "no-store"
        return response

    def feedback_view(self, request: HttpRequest, object_id: str, position: int) -> HttpResponse:
        """A thumb of the operator on an answer; the same one again takes it back."""
        if not request.user.has_perm("helix_sessions.add_feedback"):
            raise PermissionDenied
        session, rating = self._session(object_id), request.POST.get("rating")
        if session is None or rating not in FEEDBACK_RATINGS:
            raise Http404
        me, sessions = str(request.user.pk), store()
        try:
            mine = [each for each in sessions.list_feedback(session.session_id) if each.by == me]
            again = any(each.position == position and each.rating == rating for each in mine)
            kept = sessions.give_feedback(session.session_id, position, None if again else rating, by=me)
        except HelixSessionsError as error:
            self.message_user(request, str(error), messages.ERROR)
            kept = None
        place = reverse("admin:helix_sessions_session_timeline", args=[quote(session.session_id)])
        return HttpResponseRedirect(
            f"{place}?seq={kept.message_seq}#seq-{kept.message_seq}" if kept else place
        )

    def state_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The agent's document, and differences between checkpoints."""
        session = self._session(object_id)
        if session is None:
            return self._gone(request, object_id)
        start, end = request.GET.get("from", ""), request.GET.get("to", "") or states.NOW
        context = {
            "checkpoints": states.checkpoints(session),
            "state": states.state(store(), session),
            "metadata": shown(session.metadata),
            "difference": states.difference(store(), session, start, end) if start else None,
            "start": start,
            "end": end,
            "may_branch": ACTIONS["branch"].is_allowed(request),
        }
        return self._render(request, session, "state", context)

    def context_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What the model sees, and what it does not see any more."""
        session = self._session(object_id)
        if session is None:
            return self._gone(request, object_id)
        page = contexts.context_page(store(), session)
        return self._render(request, session, "context", {"page": page})

    def runs_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """How long, how it ended, what it used."""
        session = self._session(object_id)
        if session is None:
            return self._gone(request, object_id)
        lines, older = runs.runs(session, timeline.View.of(request.GET).before)
        return self._render(request, session, "runs", {"runs": lines, "older": older, "bar": runs.BAR})

    def inbox_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What was asked for, and who drives the session."""
        session = self._session(object_id)
        if session is None:
            return self._gone(request, object_id)
        context = {"owner": inbox.owner(session), "inputs": inbox.inputs(session)}
        return self._render(request, session, "inbox", context)

    def tree_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The sub-sessions and theirs."""
        session = self._session(object_id)
        if session is None:
            return self._gone(request, object_id)
        return self._render(request, session, "tree", {"tree": tree.tree(session.session_id)})

    def staging_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What tools wrote for a step that is not committed."""
        session = self._session(object_id)
        if session is None:
            return self._gone(request, object_id)
        return self._render(request, session, "staging", {"staged": waiting.staged(session)})

    def calls_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Which calls wait for whom."""
        session = self._session(object_id)
        if session is None:
            return self._gone(request, object_id)
        context = {
            "pending": waiting.pending(session),
            "awaited": waits.awaited(session),
            "call_actions": call_actions(request) if not presentation.is_ended(session) else [],
        }
        return self._render(request, session, "calls", context)

    def log_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What operators did."""
        session = self._session(object_id)
        if session is None:
            return self._gone(request, object_id)
        entries = LogEntry.objects.filter(
            content_type=get_content_type_for_model(Session), object_id=session.session_id
        ).select_related("user")
        context = {
            "log": entries.order_by("-action_time")[:100],
            "requests_url": self._requests_url(request, session),
        }
        return self._render(request, session, "log", context)

    def _requests_url(self, request: HttpRequest, session: Session) -> str:
        """The URL of this session's audit trail, for users who may see it."""
        is_there = self.admin_site.is_registered(AuditEntry)
        may_see = is_there and request.user.has_perm("helix_sessions.view_auditentry")
        return audits.entries_of(session.session_id) if may_see else ""

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The admin's own history is the operators' log."""
        return HttpResponseRedirect(reverse("admin:helix_sessions_session_log", args=[object_id]))

    def raw_view(self, request: HttpRequest, object_id: str, what: str) -> HttpResponse:
        """A document whole, as a download, without its secrets: an event by its number, or the state."""
        session_id = unquote(object_id)
        try:
            value = _document(session_id, what)
        except (HelixSessionsError, LookupError):
            raise Http404 from None
        text = json.dumps(masked(value), ensure_ascii=False, indent=2)
        response = HttpResponse(text, content_type="application/json")
        response["Content-Disposition"] = f'attachment; filename="{what}.json"'
        response["X-Content-Type-Options"] = "nosniff"
        response["Cache-Control"] = "no-store"
        return response

    def _session(self, object_id: str) -> Session | None:
        session_id = unquote(object_id)
        if not presentation.is_id(session_id):
            return None
        session = stored(Session).only(*HEADER_COLUMNS).filter(session_id=session_id).first()
        return None if session is None else decryption.settle(session)

    def _gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._get_obj_does_not_exist_redirect(request, self.opts, unquote(object_id))  # type: ignore[attr-defined, no-any-return]

    def _render(
        self, request: HttpRequest, session: Session, page: str, context: dict[str, Any]
    ) -> TemplateResponse:
        request.current_app = self.admin_site.name
        return TemplateResponse(
            request,
            f"admin/helix_sessions/session/{page}.html",
            {**self._header(request, session), "current": page, **context},
        )

    def _header(self, request: HttpRequest, session: Session) -> dict[str, Any]:
        now = timezone.now()
        allowed = [
            action
            for action in ACTIONS.values()
            if not action.answers and action.is_allowed(request) and not action.refusal(session)
        ]
        fitting, more = overview.fitting(allowed, session, now)
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": session.session_id,
            "listed": request.GET.get("_changelist_filters", ""),
            "media": self.media,
            "session": session,
            "object_id": quote(session.session_id),
            "status_chip": presentation.status_chip(session.status),
            "chips": list(presentation.condition_chips(session, now)),
            "remarks": [*_unreadable(session), *overview.beyond_the_headline(session, now)],
            "metadata_shown": shown(session.metadata) if session.metadata else None,
            "overview": overview.overview(session, now),
            "alike": overview.alike_url(session),
            "fitting": fitting,
            "may_judge": request.user.has_perm("helix_sessions.add_feedback"),
            "more": more,
            "open_calls": [call for call in waiting.pending(session) if call.submitted_at is None][:3]
            if not presentation.is_ended(session)
            else [],
            "answers": call_actions(request),
            "tabs": _tabs(session),
        }


def call_actions(request: HttpRequest) -> list[Action]:
    """The ways this user may answer pending calls."""
    return [action for action in ACTIONS.values() if action.answers and action.is_allowed(request)]


def _unreadable(session: Session) -> list[presentation.Remark]:
    """That a part of the session could not be decrypted, and why."""
    reason = decryption.reason(session)
    return [] if reason is None else [presentation.Remark(tone="failed", text=str(reason))]


def _stream(session: Session) -> str:
    """The address of the session's event stream, if this project serves the API."""
    try:
        return reverse("helix_sessions:event-stream", args=[session.session_id])
    except NoReverseMatch:
        return ""


def _tabs(session: Session) -> list[tuple[str, str, int | None]]:
    """The pages, each with the number of what it lists that counts now."""
    calls = len(presentation.waiting_calls(session)) + len(waits.awaited(session))
    return [
        ("timeline", _("Timeline"), session.head_seq),
        ("trace", _("Trace"), None),
        ("state", _("State"), None),
        ("context", _("Context"), None),
        ("runs", _("Runs"), session.turn_count),
        ("inbox", _("Inbox"), session.pending_inputs),
        ("tree", _("Sub-sessions"), tree.size(session.session_id)),
        ("staging", _("Staging"), session.staged_count),
        ("calls", _("Pending calls"), calls),
        ("log", _("Operators"), None),
    ]


def _document(session_id: str, what: str) -> Any:
    if what == "state":
        return store().load_state(session_id).custom_state
    if what == "context":
        return asdict(store().get_context(session_id))
    if what.isascii() and what.isdigit() and len(what) < 19:
        events = store().get_events(session_id, int(what), int(what) + 1)
        if events:
            return events[0].data
    raise NotFound
