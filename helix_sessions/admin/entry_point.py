"""The console on the first page of the admin: where it leads, and what needs an operator now."""

from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from helix_sessions.admin import facets, navigation, presentation
from helix_sessions.admin.base import forgotten_migrate_told
from helix_sessions.admin.filters import CONDITIONS
from helix_sessions.exceptions import NotMigrated

TEMPLATE = "admin/helix_sessions/index.html"
_NEEDED = ("stuck", "waiting", "stopping", "expired")
"""The conditions that need an operator; that sessions run needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """What the box shows."""

    name: Any
    address: str
    places: list[navigation.Place]
    search_url: str
    is_known: bool
    """Whether this user may know how many there are."""
    numbers: list[tuple[presentation.Chip, facets.Counted, str]] = field(default_factory=list)


def entry_of(request: HttpRequest) -> EntryPoint | None:
    """The box for this user; `None` for one who may see nothing of it."""
    places = navigation.places(request)
    if not places:
        return None
    is_known = request.user.has_perm("helix_sessions.view_session")
    numbers = []
    if is_known:
        try:
            with forgotten_migrate_told():
                numbers = _numbers()
        except NotMigrated:
            is_known = False
    return EntryPoint(
        name=apps.get_app_config("helix_sessions").verbose_name,
        address=places[0].address,
        places=places,
        search_url=navigation.search_url(request),
        is_known=is_known,
        numbers=numbers,
    )


def _numbers() -> list[tuple[presentation.Chip, facets.Counted, str]]:
    """How many there are of what needs an operator; two statements, kept for a few seconds."""
    sessions = reverse("admin:helix_sessions_session_changelist")
    failed, counts = facets.failed_in_a_day(), facets.whole()["is"]
    label = _("Failed in 24 hours")
    found = [(presentation.Chip(kind="failed", label=label), failed, f"{sessions}?status=failed&within=day")]
    found += [
        (presentation.Chip(kind=name, label=CONDITIONS[name][0]), counts[name], f"{sessions}?is={name}")
        for name in _NEEDED
    ]
    return [each for each in found if each[1].value]
