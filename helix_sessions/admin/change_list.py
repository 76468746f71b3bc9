"""The list of sessions as a page has it: filters in one line with counts, and chips to take them off."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.admin.views.main import ORDER_VAR, PAGE_VAR, SEARCH_VAR
from django.http import HttpRequest
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from helix_sessions.admin import facets
from helix_sessions.admin.filters import AgentTypeFilter, ConditionFilter, DaysFilter, StatusFilter
from helix_sessions.admin.row_facts import add_facts

if TYPE_CHECKING or not apps.is_installed("unfold"):
    from django.contrib.admin.views.main import ChangeList
else:
    from unfold.views import ChangeList


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One value of a filter."""

    value: str
    label: Any
    selected: bool
    count: facets.Counted | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A filter in the line: `select`, `text` with suggestions, or `days`."""

    kind: str
    name: str
    label: Any
    value: str
    choices: list[Choice]
    spec: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedFilter:
    """A filter that is on, and the address without it."""

    label: Any
    value: Any
    without: str


class SessionChangeList(ChangeList):
    """Draws its filters itself, above the rows."""

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """As ever; but the admin is not to draw the filters."""
        found = super().get_queryset(request, *args, **kwargs)
        self.has_filters = False
        return found

    def get_results(self, request: HttpRequest) -> None:
        """The rows of the page, each with what its documents and runs say."""
        self._request = request
        super().get_results(request)
        self.result_list = list(self.result_list)
        add_facts(self.result_list)

    @property
    def is_narrowed(self) -> bool:
        """Whether a filter or a search is on."""
        return bool(self._applied())

    @property
    def is_sorted_among_the_newest(self) -> bool:
        """Whether the order is one that no index has, and there are more rows than were sorted."""
        return bool(self.paginator.is_bounded and not self.paginator.follows_an_index)

    @cached_property
    def fields(self) -> list[Field]:
        """The filters of the line."""
        return [self._field(spec) for spec in self.filter_specs]

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What a form of the line keeps of the address: what is no filter of it, and no page."""
        drawn = {SEARCH_VAR, PAGE_VAR}
        for spec in self.filter_specs:
            drawn.update(str(name) for name in spec.expected_parameters())
        return [
            (name, value)
            for name, values in self.filter_params.items()
            if name not in drawn
            for value in (values if isinstance(values, list) else [values])
        ]

    @property
    def address(self) -> str:
        """The query string of this list without its page: what a saved view has."""
        return self._query()

    @property
    def applied(self) -> list[AppliedFilter]:
        """The filters that are on."""
        return [
            AppliedFilter(label=label, value=value, without=f"?{self._query(without=names)}")
            for label, value, names in self._applied()
        ]

    def _applied(self) -> list[tuple[Any, Any, set[str]]]:
        found: list[tuple[Any, Any, set[str]]] = []
        if self.query:
            found.append((_("search"), self.query, {SEARCH_VAR}))
        for spec in self.filter_specs:
            names = {str(name) for name in spec.expected_parameters() if name in self.params}
            if names:
                found.append((spec.title, self._chosen(spec), names))
        return found

    def _chosen(self, spec: Any) -> Any:
        if isinstance(spec, DaysFilter):
            return spec.words
        labels = {str(value): label for value, label in getattr(spec, "lookup_choices", ())}
        return labels.get(str(spec.value()), spec.value())

    def _query(self, without: set[str] | frozenset[str] = frozenset()) -> str:
        pairs = [(name, value) for name, value in self.params.items() if name not in without]
        return urlencode(sorted(pairs))

    def _field(self, spec: Any) -> Field:
        if isinstance(spec, DaysFilter):
            return Field(
                kind="days",
                name=spec.parameters[0],
                label=spec.title,
                value="",
                choices=list(self._days(spec)),
                spec=spec,
            )
        value = str(spec.value() or "")
        counts = self._counts.get(str(spec.parameter_name), {})
        choices = [
            Choice(value=str(name), label=label, selected=str(name) == value, count=counts.get(str(name)))
            for name, label in spec.lookup_choices
        ]
        kind = "text" if isinstance(spec, AgentTypeFilter) else "select"
        return Field(
            kind=kind, name=spec.parameter_name, label=spec.title, value=value, choices=choices, spec=spec
        )

    def _days(self, spec: DaysFilter) -> Iterator[Choice]:
        for choice in spec.choices(self):
            yield Choice(value=choice["query_string"], label=choice["display"], selected=choice["selected"])

    @cached_property
    def _counts(self) -> facets.Counts:
        """The counts of the choices; none while searching, because a search is done once."""
        if self.query:
            return {}
        status, condition = (str(spec.parameter_name) for spec in (StatusFilter, ConditionFilter))
        if not set(self.params) - {ORDER_VAR, SEARCH_VAR}:
            return facets.whole()
        rows = self.root_queryset
        for spec in self.filter_specs:
            if not {status, condition} & {str(name) for name in spec.expected_parameters()}:
                narrowed = spec.queryset(self._request, rows)
                rows = rows if narrowed is None else narrowed
        return facets.within(rows, self.params.get(status), self.params.get(condition))
