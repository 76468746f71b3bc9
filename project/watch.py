"""Pages to watch sessions live."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from helix_sessions.api.scoping import may_view_all
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.store import SessionStore


def _store(request: HttpRequest) -> SessionStore:
    return SessionStore() if may_view_all(request.user) else SessionStore(owned_by=request.user)


@login_required(login_url="admin:login")
def sessions(request: HttpRequest) -> HttpResponse:
    """The newest sessions this user may see."""
    return render(request, "sessions.html", {"sessions": _store(request).list_sessions(limit=50).items})


@login_required(login_url="admin:login")
def watch(request: HttpRequest, session_id: str) -> HttpResponse:
    """One session from its beginning on, and as it goes on."""
    try:
        _store(request).load_state(session_id)
    except HelixSessionsError:
        raise Http404 from None
    stream = reverse("helix_sessions:event-stream", args=[session_id])
    return render(
        request, "watch.html", {"session_id": session_id, "stream": f"{stream}?after=0&named=false"}
    )
