"""Tags of the operator's console.

Django imports the tags of every app with the first template of any page, also where there is no admin, or
while the admin is being imported. So the console itself is imported when a tag is used.
"""

from datetime import datetime, timedelta
from typing import Any

from django import template
from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

register = template.Library()


@register.filter
def ago(value: datetime | None) -> str:
    """How long ago, or in how long."""
    from helix_sessions.admin import humanize

    return "" if value is None else humanize.ago(value, timezone.now())


@register.filter
def age(value: datetime | None) -> str:
    """How long it has been."""
    from helix_sessions.admin import humanize

    return "" if value is None else humanize.duration(timezone.now() - value)


@register.filter
def span(value: timedelta | None) -> str:
    """A duration in at most two units."""
    from helix_sessions.admin import humanize

    return "" if value is None else humanize.duration(value)


@register.simple_tag
def session_url(session_id: str, page: str = "change", *arguments: Any) -> str:
    """The address of a page of a session."""
    return reverse(f"admin:helix_sessions_session_{page}", args=[quote(session_id), *arguments])


@register.simple_tag
def icon(name: str) -> SafeString:
    """An icon; decorative, so always next to words."""
    from helix_sessions.admin import widgets

    return widgets.icon(name)


@register.simple_tag
def chip(value: Any) -> SafeString:
    """A status or condition as text, colour and icon."""
    from helix_sessions.admin import widgets

    return widgets.chip(value)


@register.simple_tag
def when(value: datetime | None) -> SafeString:
    """A time, relative, with the exact one at hand."""
    from helix_sessions.admin import widgets

    return widgets.when(value)


@register.simple_tag
def deadline(value: datetime | None) -> SafeString:
    """A time by which something is due, marked when it has passed."""
    from helix_sessions.admin import widgets

    return widgets.deadline(value)


@register.inclusion_tag("admin/helix_sessions/includes/document.html")
def document(
    shown: Any, raw_url: str = "", label: str = "", is_open: bool = False, with_brief: bool = False
) -> dict[str, Any]:
    """A collapsible document with its size, a download, and if wanted its first words."""
    return {
        "shown": shown,
        "raw_url": raw_url,
        "label": label,
        "is_open": is_open,
        "with_brief": with_brief,
    }


@register.inclusion_tag("admin/helix_sessions/includes/navigation.html", takes_context=True)
def helix_navigation(context: dict[str, Any], current: str = "") -> dict[str, Any]:
    """The navigation of the console, for this user."""
    from helix_sessions.admin.navigation import places, search_url

    request = context["request"]
    return {"places": places(request), "search_url": search_url(request), "current": current}


@register.inclusion_tag("admin/helix_sessions/includes/entry_point.html", takes_context=True)
def helix_entry(context: dict[str, Any]) -> dict[str, Any]:
    """The console on the first page of the admin, for those who may see something of it."""
    from helix_sessions.admin.entry_point import entry_of

    return {"entry": entry_of(context["request"])}


@register.inclusion_tag("admin/helix_sessions/dashboard.html", takes_context=True)
def helix_dashboard(context: dict[str, Any]) -> dict[str, Any]:
    """The dashboard, for those who may see sessions."""
    from helix_sessions.admin.base import forgotten_migrate_told
    from helix_sessions.admin.dashboard import dashboard_context
    from helix_sessions.exceptions import NotMigrated

    if not context["request"].user.has_perm("helix_sessions.view_session"):
        return {}
    try:
        with forgotten_migrate_told():
            return dashboard_context()
    except NotMigrated as error:
        return {"sentence": str(error)}


@register.inclusion_tag("admin/helix_sessions/now/first.html", takes_context=True)
def helix_now(context: dict[str, Any]) -> dict[str, Any]:
    """What goes wrong now, for those who may see sessions; the dashboard says it where tables are missing."""
    from helix_sessions.admin.base import forgotten_migrate_told
    from helix_sessions.admin.now_views import now_context
    from helix_sessions.exceptions import NotMigrated

    request = context["request"]
    if not request.user.has_perm("helix_sessions.view_session"):
        return {}
    try:
        with forgotten_migrate_told():
            return now_context(request)
    except NotMigrated:
        return {}


@register.filter
def spaced(value: float | None) -> str:
    """A number with separators between its thousands."""
    return "" if value is None else f"{round(value):,}"


@register.filter
def unlocalised(value: float) -> str:
    """A number as an attribute of an SVG takes it, in any language."""
    return f"{value:.2f}"
