"""The views of actions: a page that explains the action and asks for a reason, then the outcome."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from helix_sessions.admin import presentation
from helix_sessions.admin.action import Action
from helix_sessions.admin.actions import ACTIONS
from helix_sessions.admin.base import store, stored
from helix_sessions.admin.bulk_views import BulkViews
from helix_sessions.admin.exports import download
from helix_sessions.admin.forms import focus
from helix_sessions.admin.operations import Outcome, carry_out, selected
from helix_sessions.admin.pages.waiting import Pending, pending
from helix_sessions.models import Session
from helix_sessions.store.sessions.delete import tree_of

LISTED = 50
"""So many sessions are named on a page; the rest are counted."""

MOST_AT_ONCE = 1_000
"""So many sessions one request takes; more of them are acted upon in the background."""

LONGEST_QUERY = 2_000
"""A longer query string of the list is not carried along."""

ListAction = Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponse | None]


class ActionViews(BulkViews):
    """Every action goes through one page, from the list and from a session alike."""

    def get_urls(self) -> list[URLPattern]:
        """The page of each action, before the admin's own."""
        view = self.admin_site.admin_view(self.action_view)
        return [path("action/<str:name>/", view, name="helix_sessions_session_action"), *super().get_urls()]

    def list_action(self, action: Action) -> ListAction:
        """The action of the list, which only shows the page."""

        def choose(_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
            limit = MOST_AT_ONCE
            ids = list(queryset.order_by().values_list("session_id", flat=True)[: limit + 1])
            if len(ids) > limit and not (action.is_for_one or action.is_download):
                query = urlencode({"filter": request.GET.urlencode()})
                place = reverse("admin:helix_sessions_session_action", args=[action.name])
                return HttpResponseRedirect(f"{place}?{query}")
            if len(ids) > limit:
                text = _("At most %d sessions can be downloaded at once. Narrow the list down with filters.")
                self.message_user(request, text % limit, messages.ERROR)
                return None
            return self._confirm(request, action, ids, listed=_listed(request.GET.urlencode()))

        choose.__name__ = f"choose_{action.name}"
        return choose

    def action_view(self, request: HttpRequest, name: str) -> HttpResponseBase:
        """GET explains the action; POST with a reason carries it out."""
        action = ACTIONS.get(name)
        if action is None:
            raise Http404
        if not action.is_allowed(request):
            raise PermissionDenied
        chosen = request.POST if request.method == "POST" else request.GET
        if "filter" in chosen:
            if action.is_for_one or action.is_download:
                raise Http404
            begins = self.bulk_begin if request.method == "POST" else self.bulk_confirm
            return begins(request, action, chosen["filter"])
        if request.method != "POST":
            return self._confirm(request, action, request.GET.getlist("id")[:LISTED], initial=request.GET)
        ids = _posted_ids(request)
        form = _form(action, request, request.POST)
        if not ids or (action.is_for_one and len(ids) > 1):
            raise Http404
        if not form.is_valid():
            focus(form)
            return self._confirm(request, action, ids, form=form, listed=_listed(request.POST.get("list")))
        outcome = carry_out(action, store(), request, ids, form.cleaned_data)
        if action.is_download and not outcome.failures:
            return download(store(), outcome.done)
        return self._tell(request, action, ids, outcome)

    def _confirm(
        self,
        request: HttpRequest,
        action: Action,
        ids: list[str],
        *,
        form: Any = None,
        initial: Any = None,
        listed: str | None = None,
    ) -> HttpResponse:
        sessions = selected(ids)
        asked = None
        if action.answers and sessions:
            asked = _asked(sessions[0].session_id, (form.data if form else initial) or {})
        if not sessions or (action.answers and (asked is None or asked.kind != action.answers)):
            gone = _("There is no such session any more.") if not sessions else _("This call waits no more.")
            self.message_user(request, gone, messages.WARNING)
            return HttpResponseRedirect(reverse("admin:helix_sessions_session_changelist"))
        refused = [(session, why) for session in sessions if (why := action.refusal(session))]
        count = len(sessions) - len(refused)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": action.label,
            "action": action,
            "ids": json.dumps([session.session_id for session in sessions]),
            "promise": action.promise % {"count": count},
            "count": count,
            "sessions": [
                (session, presentation.status_chip(session.status), action.refusal(session))
                for session in sessions[:LISTED]
            ],
            "unlisted": max(len(sessions) - LISTED, 0),
            "refused": refused,
            "asked": asked,
            "below": _below(ids) if not action.leaves_session else None,
            "form": form or _form(action, request, initial=_initial(initial, asked), sessions=sessions),
            "back": _back(action, sessions, listed),
            "listed": listed,
        }
        request.current_app = self.admin_site.name
        status = 200 if form is None else 422
        return TemplateResponse(request, "admin/helix_sessions/session/confirm.html", context, status=status)

    def _tell(self, request: HttpRequest, action: Action, ids: list[str], outcome: Outcome) -> HttpResponse:
        text = str(action.report % {"count": len(outcome.done)})
        if action.name == "delete" and (below := len(set().union(*outcome.results) - set(outcome.done))):
            went = ngettext("%d sub-session went with it.", "%d sub-sessions went with it.", below)
            text = f"{text} {went % below}"
        if outcome.old_and_new:
            text += f" {outcome.old_and_new}."
        listed = _listed(request.POST.get("list"))
        if not outcome.failures:
            self.message_user(request, text, messages.SUCCESS)
            return HttpResponseRedirect(_next(action, outcome, listed))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": action.label,
            "action": action,
            "report": text,
            "outcome": outcome,
            "total": len(set(ids)),
            "back": _list_url(listed),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/helix_sessions/session/outcome.html", context)


def _form(
    action: Action,
    request: HttpRequest,
    data: Any = None,
    *,
    initial: Any = None,
    sessions: list[Session] | None = None,
) -> Any:
    """The form of an action, with what is set in the sessions. Only a user who may make tool rules is asked
    whether to make one, and only for an owner where there is one."""
    present, differ = action.present(sessions) if sessions else ({}, set())
    form: Any = action.form(data, initial={**present, **(initial or {})})
    for name in differ:
        form.fields[name].widget.attrs["placeholder"] = _("They differ. Empty: each stays as it is.")
    focus(form)
    remember: Any = form.fields.get("remember")
    if remember is None:
        return form
    if not request.user.has_perm("helix_sessions.change_toolrule"):
        if data is not None and data.get("remember"):
            raise PermissionDenied
        del form.fields["remember"]
    elif sessions and sessions[0].owner_id is None:
        remember.choices = [choice for choice in remember.choices if choice[0] != "owner"]
    return form


def _listed(query: str | None) -> str | None:
    """The query string of the list that the action was chosen on, made anew: a form may send anything."""
    if query is None or len(query) > LONGEST_QUERY:
        return None
    return QueryDict(query).urlencode()


def _list_url(listed: str | None) -> str:
    address = reverse("admin:helix_sessions_session_changelist")
    return f"{address}?{listed}" if listed else address


def _posted_ids(request: HttpRequest) -> list[str]:
    try:
        ids = json.loads(request.POST.get("ids", "[]"))
    except ValueError:
        return []
    if not isinstance(ids, list) or not all(isinstance(key, str) for key in ids):
        return []
    return ids if len(ids) <= MOST_AT_ONCE else []


def _initial(parameters: Any, asked: Pending | None) -> dict[str, Any]:
    if asked is not None:
        return {
            "call": asked.call_id,
            "asked_at": asked.asked_at,
            "arguments_digest": asked.digest,
            "arguments": asked.editable,
        }
    return {"checkpoint_id": parameters.get("checkpoint", "")} if parameters else {}


def _asked(session_id: str, parameters: Any) -> Pending | None:
    """The pending call of an answer, if it still waits."""
    session = stored(Session).only("pending_client_tool_calls").filter(session_id=session_id).first()
    calls = pending(session) if session is not None else []
    wanted = parameters.get("call", "")
    return next((call for call in calls if call.call_id == wanted and call.submitted_at is None), None)


def _below(ids: list[str]) -> int:
    """How many sub-sessions go with these sessions."""
    return len(tree_of(store().using, ids) - set(ids))


def _back(action: Action, sessions: list[Any], listed: str | None) -> str:
    if action.answers:
        return reverse("admin:helix_sessions_session_waiting")
    if len(sessions) == 1 and listed is None:
        return reverse("admin:helix_sessions_session_change", args=[quote(sessions[0].session_id)])
    return _list_url(listed)


def _next(action: Action, outcome: Outcome, listed: str | None) -> str:
    """Where to redirect the operator afterwards."""
    if action.answers:
        return reverse("admin:helix_sessions_session_waiting")
    if action.is_for_one and isinstance(outcome.results[0], str):  # the new session
        return reverse("admin:helix_sessions_session_change", args=[quote(outcome.results[0])])
    if len(outcome.done) == 1 and action.leaves_session and listed is None:
        return reverse("admin:helix_sessions_session_change", args=[quote(outcome.done[0])])
    return _list_url(listed)
