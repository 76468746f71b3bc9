"""One navigation on all pages of the console."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext_lazy as _

_APP = "helix_sessions"
_ROWS = f"admin:{_APP}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A page that the navigation leads to."""

    name: str
    model: str
    """The model whose pages belong to it."""
    label: Any
    address: str


_PLACES: tuple[tuple[str, str, Any, str, tuple[str, ...]], ...] = (
    ("now", "", _("Now"), "admin:app_list", (_APP,)),
    ("sessions", "session", _("Sessions"), f"{_ROWS}_session_changelist", ()),
    ("waiting", "", _("Waiting"), f"{_ROWS}_session_waiting", ()),
    ("workers", "worker", _("Workers"), f"{_ROWS}_session_workers", ()),
    ("audit", "auditentry", _("Audit"), f"{_ROWS}_auditentry_changelist", ()),
    ("instructions", "instructions", _("Instructions"), f"{_ROWS}_instructions_changelist", ()),
)
"""Name, model, label, address and its arguments."""

_PERMISSIONS = {"audit": "view_auditentry", "instructions": "view_instructions"}
"""What a page needs; the others need `view_session`."""


def places(request: HttpRequest) -> list[Place]:
    """Where this user may go. A page that the site does not have is left out."""
    found = []
    for name, model, label, route, arguments in _PLACES:
        address = _address(request, route, arguments, _PERMISSIONS.get(name, "view_session"))
        if address:
            found.append(Place(name=name, model=model, label=label, address=address))
    return found


def search_url(request: HttpRequest) -> str:
    """Where a search for sessions goes; empty for a user who may not see them."""
    return _address(request, f"{_ROWS}_session_changelist", (), "view_session")


def _address(request: HttpRequest, route: str, arguments: tuple[str, ...], permission: str) -> str:
    if not request.user.has_perm(f"{_APP}.{permission}"):
        return ""
    try:
        return reverse(route, args=arguments, current_app=getattr(request, "current_app", None))
    except NoReverseMatch:
        return ""
