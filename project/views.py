"""The documentation, page by page, and a page that lists it. `make docs` builds a site of it."""

from pathlib import PurePosixPath

from django.conf import settings
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.safestring import mark_safe
from markdown import markdown

from tools.docs_site import slug, with_absolute_links, without_marks

_GROUPS = {
    ".": "Start here",
    "how-to": "How-to",
    "operations": "Operations",
    "reference": "Reference",
    "explanation": "Explanation",
}


def _documents() -> list[str]:
    docs = settings.BASE_DIR / "docs"
    return sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))


def _files() -> set[str]:
    """What pages show and link to beside each other: pictures and numbers."""
    docs = settings.BASE_DIR / "docs"
    found = [*docs.glob("images/*.png"), *docs.glob("images/*.svg"), *docs.glob("*.json")]
    return {path.relative_to(docs).as_posix() for path in found}


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


def _found(words: str) -> list[tuple[str, str]]:
    """Name and title of the pages that have all the words."""
    docs = settings.BASE_DIR / "docs"
    texts = {name: (docs / name).read_text(encoding="utf-8").casefold() for name in _documents()}
    wanted = words.casefold().split()
    names = [name for name, text in texts.items() if all(word in text for word in wanted)]
    return [(name, _title(name)) for name in sorted(names, key=lambda name: -texts[name].count(wanted[0]))]


def documents(request: HttpRequest) -> HttpResponse:
    """Show the front ends of the app, and what there is to read, or the pages that have the words of `q`."""
    words = request.GET.get("q", "").strip()
    pages = {"Found": _found(words)} if words else _grouped_documents()
    return render(request, "documents.html", {"documents": pages, "words": words})


def document(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show one page of `docs/`, or one of its pictures and files."""
    if name in _files():
        return FileResponse(open(settings.BASE_DIR / "docs" / name, "rb"))
    if name not in _documents():
        raise Http404
    text = (settings.BASE_DIR / "docs" / name).read_text(encoding="utf-8")
    body = markdown(
        without_marks(with_absolute_links(text, name)),
        extensions=["tables", "fenced_code", "sane_lists", "toc"],
        extension_configs={"toc": {"slugify": slug}},
    )
    page = {"title": _title(name), "name": name, "body": mark_safe(body), "documents": _grouped_documents()}  # noqa: S308
    return render(request, "document.html", page)
