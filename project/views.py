"""The documentation as plain text, and a page that lists it."""

from pathlib import PurePosixPath

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

_GROUPS = {".": "Start here", "how-to": "How-to", "reference": "Reference", "explanation": "Explanation"}


def _documents() -> list[str]:
    docs = settings.BASE_DIR / "docs"
    return sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))


def _title(name: str) -> str:
    """What a page calls itself in its first line."""
    with open(settings.BASE_DIR / "docs" / name, encoding="utf-8") as file:
        return file.readline().strip("# \n") or name


def _grouped_documents() -> dict[str, list[tuple[str, str]]]:
    """Name and title of every page, under the heading of its folder."""
    groups: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _GROUPS.values()}
    for name in _documents():
        folder = PurePosixPath(name).parent.as_posix()
        groups.setdefault(_GROUPS.get(folder, folder), []).append((name, _title(name)))
    return {heading: pages for heading, pages in groups.items() if pages}


def documents(request: HttpRequest) -> HttpResponse:
    """Show the doors of the app, and what there is to read."""
    return render(request, "documents.html", {"documents": _grouped_documents()})


def document(request: HttpRequest, name: str) -> HttpResponse:
    """Show one file of `docs/`."""
    if name not in _documents():
        raise Http404
    text = (settings.BASE_DIR / "docs" / name).read_text(encoding="utf-8")
    return HttpResponse(text, content_type="text/plain; charset=utf-8")
