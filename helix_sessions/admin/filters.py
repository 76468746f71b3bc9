"""Filters of the lists. Each reads one index, or a fixed number of rows."""

from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.translation import gettext_lazy as _

from helix_sessions.admin.base import stored
from helix_sessions.admin.humanize import STATUS_LABELS
from helix_sessions.admin.presentation import is_id
from helix_sessions.conf import conf
from helix_sessions.models import Session
from helix_sessions.models.session_querysets import SessionQuerySet

AGENT_TYPES_SHOWN = 200
"""So many agent types are suggested; any other can be typed."""


def stuck_since() -> datetime:
    """Running sessions that have not changed since then are stuck."""
    return timezone.now() - timedelta(minutes=conf.STUCK_MINUTES)


CONDITIONS: dict[str, tuple[Any, Callable[[SessionQuerySet], SessionQuerySet]]] = {
    "stuck": (_("Stuck"), lambda rows: rows.stuck(stuck_since())),
    "waiting": (_("Waiting for a person"), lambda rows: rows.awaiting_client()),
    "running": (_("Running"), lambda rows: rows.running()),
    "stopping": (_("Asked to stop"), lambda rows: rows.interrupted_by_request()),
    "expired": (_("Expired"), lambda rows: rows.expired(timezone.now())),
}


class StatusFilter(admin.SimpleListFilter):
    """`?status=failed`"""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Every status of a session."""
        return list(STATUS_LABELS.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The sessions of the chosen status."""
        return queryset.filter(status=self.value()) if self.value() in STATUS_LABELS else queryset


class ConditionFilter(admin.SimpleListFilter):
    """`?is=stuck`: conditions that need an operator."""

    title = _("condition")
    parameter_name = "is"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The conditions by name."""
        return [(name, label) for name, (label, _find) in CONDITIONS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The sessions in the chosen condition."""
        chosen = CONDITIONS.get(str(self.value()))
        return queryset if chosen is None else chosen[1](queryset)  # type: ignore[arg-type]


class ColumnFilter(admin.SimpleListFilter):
    """The rows with one value of a column."""

    column: str

    def has_output(self) -> bool:
        """A value in the URL applies even when it is not among the choices."""
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows with the chosen value."""
        value = self.value()
        if not value:
            return queryset
        return queryset.filter(**{self.column: value}) if is_id(value) else queryset.none()


class AgentTypeFilter(ColumnFilter):
    """`?agent=support`"""

    title = _("agent type")
    parameter_name = "agent"
    column = "agent_type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The first agent types by name, as suggestions."""
        return [(name, name) for name in stored(Session).agent_types(AGENT_TYPES_SHOWN)]


class DaysFilter(admin.ListFilter):
    """The rows of some days, the first and the last included."""

    template = "admin/helix_sessions/includes/days_filter.html"
    column: str
    parameters: tuple[str, str]

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: type[Any], model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        for name in self.parameters:
            if name in params:
                value = params.pop(name)
                self.used_parameters[name] = value[-1] if isinstance(value, list) else value

    def has_output(self) -> bool:
        """Always."""
        return True

    def expected_parameters(self) -> list[str | None]:
        """Both ends of the range."""
        return list(self.parameters)

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:
        """Usual ranges; the template offers any other."""
        others = {name: value for name, value in changelist.params.items() if name not in ("p", "e")}
        self.kept = [
            (n, v[-1] if isinstance(v, list) else v) for n, v in others.items() if n not in self.parameters
        ]
        today = timezone.localdate()
        chosen = tuple(self.used_parameters.get(name) or None for name in self.parameters)
        usual = [
            (_("Any time"), None),
            (_("Today"), today),
            (_("Last 7 days"), today - timedelta(days=6)),
            (_("Last 30 days"), today - timedelta(days=29)),
        ]
        for label, first in usual:
            start = None if first is None else first.isoformat()
            if start is None:
                address = changelist.get_query_string(remove=list(self.parameters))
            else:
                first_name, last_name = self.parameters
                address = changelist.get_query_string({first_name: start}, [last_name])
            yield {"selected": chosen == (start, None), "query_string": address, "display": label}

    @property
    def words(self) -> str:
        """The range in words."""
        return _("%(first)s to %(last)s") % {"first": self.first or "…", "last": self.last or "…"}

    @property
    def first(self) -> str:
        """The first day, as the form shows it."""
        return str(self.used_parameters.get(self.parameters[0], ""))

    @property
    def last(self) -> str:
        """The last day, as the form shows it."""
        return str(self.used_parameters.get(self.parameters[1], ""))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows in the range."""
        first, last = (_day(self.used_parameters.get(name)) for name in self.parameters)
        if first is not None:
            queryset = queryset.filter(**{f"{self.column}__gte": day_begins(first)})
        if last is not None:
            queryset = queryset.filter(**{f"{self.column}__lt": day_begins(last + timedelta(days=1))})
        return queryset


class CreatedFilter(DaysFilter):
    """`?created_from=2026-01-01&created_to=2026-01-31`"""

    title = _("created")
    column = "created_at"
    parameters = ("created_from", "created_to")


def _day(value: Any) -> date | None:
    """A day, but none of the first and last year there are: some of these have no neighbour."""
    try:
        found = parse_date(str(value)) if value else None
    except ValueError:
        return None
    return found if found is not None and date.min.year < found.year < date.max.year else None


def day_begins(day: date) -> datetime:
    """Midnight in the current time zone."""
    return timezone.make_aware(datetime.combine(day, time.min))
