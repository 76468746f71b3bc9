"""The filters of sessions and runs."""

import json
from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils.dateparse import parse_datetime
from django_filters import rest_framework as filters
from rest_framework.exceptions import ValidationError as DrfValidationError

from helix_sessions.api.schema import Query
from helix_sessions.models import Run, Session
from helix_sessions.models.session_querysets import is_runnable
from helix_sessions.store.engine import inputs
from helix_sessions.types import RUN_STATUSES, SESSION_STATUSES


class MomentField(forms.Field):
    """A time in ISO 8601 with an offset."""

    def to_python(self, value: Any) -> Any:
        if not value:
            return None
        try:
            return inputs.moment(parse_datetime(str(value)), "This")
        except ValueError:
            raise ValidationError("This must be a time in ISO 8601, with an offset.") from None


class ItemsField(forms.Field):
    """A JSON object of strings, numbers, booleans and nulls."""

    def to_python(self, value: Any) -> Any:
        if not value:
            return None
        try:
            items = json.loads(value)
            inputs.metadata(items)
        except (ValueError, RecursionError):
            raise ValidationError("This must be a JSON object.") from None
        if any(isinstance(item, dict | list) for item in items.values()):
            raise ValidationError("Only strings, numbers, booleans and nulls are allowed.")
        return items


class MomentFilter(filters.Filter):  # type: ignore[misc]
    field_class = MomentField


class ItemsFilter(filters.Filter):  # type: ignore[misc]
    field_class = ItemsField


def _text(name: str, description: str, lookup: str = "exact") -> filters.CharFilter:
    return filters.CharFilter(name, lookup, label=description, strip=False, max_length=inputs.MAX_ID)


class SessionFilter(filters.FilterSet):  # type: ignore[misc]
    """All given filters apply."""

    status = filters.ChoiceFilter(
        choices=[(status, status) for status in SESSION_STATUSES], label="The status it has."
    )
    agent_type = _text("agent_type", "The type of its agent.")
    user_id = _text("user_id", "The application's own user.")
    owner = filters.CharFilter(method="of_owner", label="The key of the user who owns it.")
    tag = _text("tags", "A tag it has.", "has")
    metadata_key = _text("metadata", "A key its metadata have.", "has_key")
    metadata = ItemsFilter(
        "metadata", "has_items", label='Items its metadata have, as JSON: `{"tier": "gold"}`.'
    )
    parent_session_id = _text("parent_session_id", "The session that started it.")
    created_after = MomentFilter("created_at", "gt", label="Created after.")
    created_before = MomentFilter("created_at", "lt", label="Created before.")
    updated_after = MomentFilter("updated_at", "gt", label="Changed after.")
    updated_before = MomentFilter("updated_at", "lt", label="Changed before.")
    expires_after = MomentFilter("expires_at", "gt", label="Expires after.")
    expires_before = MomentFilter("expires_at", "lt", label="Expires before.")
    awaiting_client = filters.BooleanFilter(
        "awaiting_client", label="Whether a tool call waits for a person or a client."
    )
    interrupt_requested = filters.BooleanFilter(
        "interrupt_requested_at", "isnull", exclude=True, label="Whether it was asked to stop."
    )

    runnable = filters.BooleanFilter(
        method="that_are_runnable", label="Whether a driver has something to do, and it has none."
    )

    class Meta:
        model = Session
        fields: list[str] = []

    def that_are_runnable(self, rows: Any, name: str, value: bool) -> Any:
        return rows.filter(is_runnable()) if value else rows.exclude(is_runnable())

    def of_owner(self, rows: Any, name: str, value: str) -> Any:
        return rows.owned_by(inputs.owner_key(value))


class RunFilter(filters.FilterSet):  # type: ignore[misc]
    status = filters.ChoiceFilter(
        choices=[(status, status) for status in RUN_STATUSES], label="The status it has."
    )
    started_after = MomentFilter("started_at", "gt", label="Started after.")
    started_before = MomentFilter("started_at", "lt", label="Started before.")
    ended_after = MomentFilter("ended_at", "gt", label="Ended after.")
    ended_before = MomentFilter("ended_at", "lt", label="Ended before.")

    class Meta:
        model = Run
        fields: list[str] = []


def narrowed(filterset: type[filters.FilterSet], given: QueryDict, rows: Any) -> Any:
    """The rows that match the query. A filterset is created only for a query with filters: it costs a
    form."""
    if not any(name in filterset.base_filters for name in given):
        return rows
    found = filterset(given, rows)
    if not found.is_valid():
        raise DrfValidationError(found.errors)
    return found.qs


def queries(filterset: type[filters.FilterSet]) -> list[Query]:
    """The filters as query parameters of the schema."""
    found = []
    for name, each in filterset.base_filters.items():
        kind: Any = str
        if isinstance(each, MomentFilter):
            kind = datetime
        elif isinstance(each, filters.BooleanFilter):
            kind = bool
        choices = each.extra.get("choices") if isinstance(each, filters.ChoiceFilter) else None
        found.append(Query(name, each.label, kind, enum=[key for key, _ in choices] if choices else None))
    return found
