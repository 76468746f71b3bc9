"""One navigation on all pages of the console."""

from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext_lazy as _

_APP = "helix_sessions"
_ROWS = f"admin:{_APP}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A page that the navigation leads to."""

    name: str
    label: Any
    address: str


_PLACES: tuple[tuple[str, Any, str, tuple[str, ...], str], ...] = (
    ("now", _("Now"), "admin:app_list", (_APP,), "view_session"),
    ("sessions", _("Sessions"), f"{_ROWS}_session_changelist", (), "view_session"),
    ("waiting", _("Waiting"), f"{_ROWS}_session_waiting", (), "view_session"),
    ("workers", _("Workers"), f"{_ROWS}_session_workers", (), "view_session"),
    ("audit", _("Audit"), f"{_ROWS}_auditentry_changelist", (), "view_auditentry"),
    (
        "instructions",
        _("Instructions"),
        f"{_ROWS}_instructions_changelist",
        (),
        "view_instructions",
    ),
)
"""Name, label, address, its arguments, and the permission that the page needs."""


def places(request: HttpRequest) -> list[Place]:
    """Where this user may go. A page that the site does not have is left out."""
    found = []
    for name, label, route, arguments, permission in _PLACES:
        if not request.user.has_perm(f"{_APP}.{permission}"):
            continue
        try:
            address = reverse(route, args=arguments, current_app=admin.site.name)
        except NoReverseMatch:
            continue
        found.append(Place(name=name, label=label, address=address))
    return found
