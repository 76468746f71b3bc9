"""The demo's own pages: where to go next, and the documentation as plain text."""

from importlib.util import find_spec

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

HAS_API = find_spec("helix_sessions.api") is not None


def _documents() -> list[str]:
    docs = settings.BASE_DIR / "docs"
    return sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))


def home(request: HttpRequest) -> HttpResponse:
    """Show the doors of the app."""
    return render(request, "home.html", {"has_api": HAS_API, "documents": _documents()})


def document(request: HttpRequest, name: str) -> HttpResponse:
    """Show one file of `docs/`."""
    if name not in _documents():
        raise Http404
    text = (settings.BASE_DIR / "docs" / name).read_text(encoding="utf-8")
    return HttpResponse(text, content_type="text/plain; charset=utf-8")
