"""The chat: one page, and the little it asks of this project. Everything else is the app's own HTTP API."""

import os
import signal
from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_GET, require_POST

from helix_sessions.api.serializers.turns import ToolResultInput
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from project.agents import CARDS, model_name
from project.visitors import is_at_home

PARENT = "HELIX_DEMO_PARENT"
"""The process that keeps a worker running for the demo, in the environment of its children."""

_SHOWN = 60


@ensure_csrf_cookie
@require_GET
def page(request: HttpRequest, session_id: str | None = None) -> HttpResponse:
    """The chat, on a new conversation or on one of the user's."""
    if session_id is not None and not (request.user.is_authenticated or is_at_home(request)):
        return redirect_to_login(request.path, reverse("admin:login"))
    if session_id is not None and request.user.is_authenticated:
        try:
            SessionStore(owned_by=request.user).get_session_head(session_id)
        except HelixSessionsError:
            raise Http404 from None
    settings = {
        "api": reverse("helix_sessions:root"),
        "home": reverse("home"),
        "enter": reverse("enter") if is_at_home(request) else None,
        "login": reverse("admin:login"),
        "conversations": reverse("conversations"),
        "admin": reverse("admin:helix_sessions_session_changelist"),
        "kill": reverse("kill-worker") if _parent(request) else None,
        "model": model_name(),
        "edits": "arguments" in ToolResultInput().fields,
        "user": request.user.get_username() or None,
        "agents": [
            {"type": card.agent_type, "name": card.name, "about": card.about, "asks": card.suggestions}
            for card in CARDS
        ],
    }
    return render(request, "chat.html", {"settings": settings, "cards": CARDS})


@login_required(login_url="admin:login")
@require_GET
def conversations(request: HttpRequest) -> JsonResponse:
    """The user's conversations with these agents, newest first, with the branches among them."""
    rows = Session.objects.owned_by(request.user.pk).filter(
        parent_session_id=None, agent_type__in=[card.agent_type for card in CARDS]
    )
    fields = ("session_id", "agent_type", "status", "metadata", "message_count", "updated_at")
    found: list[dict[str, Any]] = list(rows.order_by("-updated_at").values(*fields)[:_SHOWN])
    return JsonResponse({"items": found})


@login_required(login_url="admin:login")
@require_POST
def branch(request: HttpRequest, session_id: str) -> JsonResponse:
    """Branch off before the message at a position; the branch knows where it left its origin."""
    store = SessionStore(owned_by=request.user)
    try:
        position = int(request.POST.get("position", ""))
        made = store.clone_session(session_id, None, message_count=position)
        origin = _origin(store, session_id, position)
        store.patch_metadata(made.session_id, {"branch_of": origin, "branch_at": position})
    except HelixSessionsError as error:
        return JsonResponse({"detail": str(error)}, status=404)
    except ValueError:
        return JsonResponse({"detail": "position must be the place of a message."}, status=400)
    return JsonResponse({"session_id": made.session_id}, status=201)


def _origin(store: SessionStore, session_id: str, position: int) -> str:
    """Of a session and those it was branched off, the first that has the message at this position."""
    metadata: Any = store.get_metadata(session_id)[0]
    while "branch_of" in metadata and position <= metadata["branch_at"]:
        session_id = metadata["branch_of"]
        metadata = store.get_metadata(session_id)[0]
    return session_id


@login_required(login_url="admin:login")
@require_POST
def kill_worker(request: HttpRequest) -> JsonResponse:
    """Kill the demo's worker, as a crash would. Its parent starts another."""
    parent = _parent(request)
    if parent is None:
        raise PermissionDenied
    os.kill(parent, signal.SIGUSR1)
    return JsonResponse({"killed": True}, status=202)


def _parent(request: HttpRequest) -> int | None:
    """The process that started this one and keeps the worker: no other is ever signalled."""
    named = os.environ.get(PARENT, "")
    if not is_at_home(request) or not hasattr(signal, "SIGUSR1") or named != str(os.getppid()):
        return None
    return os.getppid()
