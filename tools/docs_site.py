"""A hook of MkDocs: what pages say to the tests and to the repository becomes what a site understands.

In the repository `../README.md` is a file beside `docs/`; on the site it is an address. The word behind the
language of a piece of code tells the tests how it is run; on the site the name of a file is its title.
"""

import posixpath
import re
from typing import Any

REPOSITORY = "https://github.com/helix-sessions/django-helix-sessions"
SITE = "https://helix-sessions.github.io/django-helix-sessions/"

_LINK = re.compile(r"\]\((?P<target>(?:\.\./)+[^)#\s]+)(?P<rest>#[^)\s]*)?\)")
_MARKED = re.compile(r"^```(?P<language>\w+) (?P<mark>\S+)$", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrite one page."""
    return _MARKED.sub(_titled, with_absolute_links(markdown, page.file.src_uri))


def with_absolute_links(markdown: str, name: str) -> str:
    """The text of the page of this name; its links out of `docs/` lead to the repository."""

    def absolute(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(name), match["target"]))
        if path.startswith("docs/"):
            return match[0]
        return f"]({REPOSITORY}/blob/main/{path}{match['rest'] or ''})"

    return _LINK.sub(absolute, markdown)


def without_marks(markdown: str) -> str:
    """The text, its code marked by nothing but its language."""
    return _MARKED.sub(r"```\g<language>", markdown)


def slug(heading: str, separator: str = "-") -> str:
    """The anchor of a heading, as the repository's host makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def _titled(match: re.Match[str]) -> str:
    title = f' title="{match["mark"]}"' if "." in match["mark"] else ""
    return f"```{match['language']}{title}"
