"""Words for operators: statuses, kinds of events, and ages."""

from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

STATUS_LABELS: dict[str, Any] = {
    "active": _("Active"),
    "paused": _("Paused"),
    "interrupted": _("Interrupted"),
    "completed": _("Completed"),
    "failed": _("Failed"),
}

RUN_STATUS_LABELS: dict[str, Any] = {
    "running": _("Running"),
    "completed": _("Completed"),
    "failed": _("Failed"),
    "interrupted": _("Interrupted"),
    "suspended_client_tool": _("Waiting for a person"),
    "suspended_awaiting_children": _("Waiting for sub-sessions"),
    "suspended_step_partial": _("Suspended in mid-step"),
}

ICONS = {
    "active": "dot",
    "running": "play",
    "stuck": "alert",
    "waiting": "person",
    "suspended_client_tool": "person",
    "suspended_awaiting_children": "tree",
    "suspended_step_partial": "pause",
    "stopping": "stop",
    "paused": "pause",
    "interrupted": "stop",
    "completed": "check",
    "failed": "cross",
    "expired": "clock",
}
"""The icon of each status and condition; colours are in the style sheet, by the same names."""

_UNITS = (
    (timedelta(days=365), "%d y"),
    (timedelta(days=1), "%d d"),
    (timedelta(hours=1), "%d h"),
    (timedelta(minutes=1), "%d min"),
)


def age(span: timedelta) -> str:
    """A span in its largest unit: `3 d`, `12 min`, `40 s`."""
    for unit, form in _UNITS:
        if span >= unit:
            return _now(form) % (span // unit)
    return _now("%d s") % max(int(span.total_seconds()), 0)


def duration(span: timedelta) -> str:
    """A span in at most two units: `3 d 4 h`, `12 min`, `1.8 s`, `80 ms`."""
    if span < timedelta(0):
        span = -span
    if span < timedelta(seconds=1):
        return _now("%d ms") % round(span / timedelta(milliseconds=1))
    if span < timedelta(seconds=10):
        return _now("%.1f s") % span.total_seconds()
    if span < timedelta(minutes=1):
        return _now("%d s") % int(span.total_seconds())
    parts = []
    for unit, form in _UNITS:
        if span >= unit:
            count, span = divmod(span, unit)
            parts.append(_now(form) % count)
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def ago(moment: datetime, now: datetime) -> str:
    """`12 min ago`, `in 3 d`, `just now`."""
    span = now - moment
    if abs(span) < timedelta(seconds=5):
        return _now("just now")
    if span > timedelta(0):
        return _now("%s ago") % duration(span)
    return _now("in %s") % duration(-span)


def size(characters: int) -> str:
    """`812 B`, `14.2 KB`, `3.1 MB`: near enough for text that is mostly ASCII."""
    if characters < 1_000:
        return _now("%d B") % characters
    if characters < 1_000_000:
        return _now("%.1f KB") % (characters / 1_000)
    return _now("%.1f MB") % (characters / 1_000_000)


def short(number: int) -> str:
    """`812`, `14.2k`, `3.1M`."""
    for unit, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= unit:
            return f"{number / unit:.1f}{letter}"
    return str(number)


def count_of_calls(count: int) -> str:
    """`1 call`, `3 calls`."""
    return ngettext("%d call", "%d calls", count) % count
