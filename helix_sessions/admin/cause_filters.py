"""Filters of the list that the page of troubles leads to. They show only while one is chosen."""

import json
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from helix_sessions.admin import decryption, presentation
from helix_sessions.admin.base import stored
from helix_sessions.admin.now.causes import FULL, LATE, NO_ERROR
from helix_sessions.admin.now.windows import WINDOWS
from helix_sessions.admin.presentation import is_id
from helix_sessions.conf import conf
from helix_sessions.content.encryption import SEALED
from helix_sessions.models import Feedback, Input, Session
from helix_sessions.types import FEEDBACK_RATINGS


class _ChosenFilter(admin.SimpleListFilter):
    """A filter with more values than can be offered: it shows the one that is chosen."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The chosen value alone."""
        value = self.used_parameters.get(str(self.parameter_name))
        value = value[-1] if isinstance(value, list) else value
        return [(value, self.name_of(value))] if value else []

    def has_output(self) -> bool:
        """While a value is chosen."""
        return bool(self.lookup_choices)

    def name_of(self, value: str) -> Any:
        """What is shown of a value."""
        return value


class CauseFilter(_ChosenFilter):
    """`?cause=<fingerprint>`, `?cause=none`, `?cause=queued`, `?cause=inbox`"""

    title = _("cause")
    parameter_name = "cause"

    def name_of(self, value: str) -> Any:
        """The cause in words."""
        return _NAMES.get(value) or _in_words(value)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The sessions with this trouble."""
        value = self.value()
        if not value:
            return queryset
        if value == NO_ERROR:
            return queryset.filter(status="failed", error_fingerprint=None)
        if value == "queued":
            return _late(queryset, timezone.now())
        if value == "inbox":
            most = max(round(conf.INBOX_LIMIT * FULL), 1)
            full = stored(Input).pending().order_by().values("session_id").annotate(count=Count("input_id"))
            return queryset.filter(session_id__in=full.filter(count__gte=most).values("session_id"))
        return queryset.filter(status="failed", error_fingerprint=value) if is_id(value) else queryset.none()


class ToolFilter(_ChosenFilter):
    """`?tool=refund`: sessions that wait for an answer to a call of this tool. Where calls are encrypted, all
    that wait."""

    title = _("tool")
    parameter_name = "tool"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The sessions that wait for it."""
        value = self.value()
        if not value:
            return queryset
        if not is_id(value):
            return queryset.none()
        rows: Any = queryset.alias(calls=Cast("pending_client_tool_calls", TextField()))
        of_tool = Q(calls__contains=f'"tool_name":{json.dumps(value, ensure_ascii=False)}')
        found: QuerySet[Any] = rows.awaiting_client().filter(of_tool | Q(calls__startswith=SEALED))
        return found


class WithinFilter(admin.SimpleListFilter):
    """`?within=day`: sessions that have had their status since then."""

    title = _("since")
    parameter_name = "within"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The windows of the page of troubles."""
        return [(window.name, window.label) for window in WINDOWS.values()]

    def has_output(self) -> bool:
        """While one is chosen."""
        return self.value() is not None

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The sessions whose status changed in the window."""
        window = WINDOWS.get(str(self.value()))
        if window is None:
            return queryset
        return queryset.filter(status_since__gte=window.start(timezone.now()))


class FeedbackFilter(admin.SimpleListFilter):
    """`?feedback=down`: sessions with an answer that a reader rated so."""

    title = _("feedback")
    parameter_name = "feedback"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Thumbs."""
        return [("up", _("Thumb up")), ("down", _("Thumb down"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The sessions with such feedback."""
        if self.value() not in FEEDBACK_RATINGS:
            return queryset
        given = stored(Feedback).rated(str(self.value())).filter(session_id=OuterRef("session_id"))
        return queryset.filter(Exists(given))


def _in_words(fingerprint: str) -> str:
    """The error of one of those sessions, which stands for all of them."""
    columns = ("session_id", "error", "failure_reason", "error_fingerprint", "status")
    rows = stored(Session).filter(status="failed", error_fingerprint=fingerprint)
    found = rows.only(*columns).first() if is_id(fingerprint) else None
    return presentation.reason(decryption.settle(found)) if found is not None else f"{fingerprint[:8]}…"


def _late(rows: Any, now: datetime) -> QuerySet[Any]:
    late: QuerySet[Any] = rows.unleased(now).filter(runnable_at__lte=now - LATE, run_id__isnull=True)
    return late


_NAMES: dict[str, Any] = {
    NO_ERROR: _("Without an error"),
    "queued": _("Ready, no worker"),
    "inbox": _("Inbox full"),
}
