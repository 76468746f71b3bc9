"""Small widgets of a page. They appear hundreds of times, so they are not templates."""

from datetime import datetime

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from helix_sessions.admin import humanize
from helix_sessions.admin.presentation import Chip


def icon(name: str) -> SafeString:
    """An icon; decorative, so always next to words."""
    return format_html(
        '<svg class="hx-icon" aria-hidden="true" focusable="false"><use href="#hx-{}"></use></svg>', name
    )


def chip(value: Chip) -> SafeString:
    """A status or condition as text, colour and icon."""
    return format_html(
        '<span class="hx-chip hx-is-{}">{}<span>{}</span></span>', value.kind, icon(value.icon), value.label
    )


def when(value: datetime | None, text: str | None = None) -> SafeString:
    """A time, relative or in the words given, with the exact one at hand."""
    if value is None:
        return format_html("{}", "-")
    local = timezone.localtime(value)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        local.isoformat(),
        local.strftime("%Y-%m-%d %H:%M:%S %Z"),
        humanize.ago(value, timezone.now()) if text is None else text,
    )


def deadline(value: datetime | None) -> SafeString:
    """A time by which something is due, marked when it has passed."""
    if value is None or value > timezone.now():
        return when(value)
    return format_html('<span class="hx-overdue">{} · {}</span>', when(value), _("overdue"))
