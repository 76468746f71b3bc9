"""The state, the status, the counters, the interrupt flag."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from django.db import models
from rest_framework.serializers import Field

from helix_sessions.api.serializers.fields import (
    ChoiceText,
    DocumentField,
    FlagField,
    IdField,
    Input,
    MomentField,
    ObjectField,
    ObjectsField,
    TextField,
    TextsField,
    WholeField,
)
from helix_sessions.models import Session
from helix_sessions.store.engine.session_columns import MAPS, SAVED_COLUMNS
from helix_sessions.types import MODES, SESSION_STATUSES, SessionState


class StateInput(Input):
    """A whole state, as it was read and then edited. What is left out takes its default, except `mode`,
    which never changes. What a caller does not own may be in it and is ignored."""

    def get_fields(self) -> dict[str, Any]:
        return {known.name: _field(known.name) for known in fields(SessionState) if known.name in _OWNED}

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            data = {key: value for key, value in data.items() if key not in NOT_OWNED}
        return super().to_internal_value(data)


_OWNED = frozenset(("custom_state", "mode", *SAVED_COLUMNS))
NOT_OWNED = frozenset(field.name for field in fields(SessionState)) - _OWNED
"""What a save ignores."""

_OWN_FIELDS: dict[str, Callable[[], Field[Any, Any, Any, Any]]] = {
    "custom_state": lambda: ObjectField(required=False),
    "status": lambda: ChoiceText(SESSION_STATUSES, required=False),
    "error": lambda: DocumentField(required=False, help_text="A string or an object."),
    "mode": lambda: ChoiceText(MODES, required=False),
    "tags": lambda: TextsField(required=False),
    "metadata": lambda: ObjectField(required=False),
}
"""Fields that do not follow from the type of their column."""


def _field(name: str) -> Field[Any, Any, Any, Any]:
    """What takes the value of a column that a save writes."""
    if name in _OWN_FIELDS:
        return _OWN_FIELDS[name]()
    column = Session._meta.get_field(name)
    optional: dict[str, Any] = {"required": False, **({"allow_null": True} if column.null else {})}
    if name in MAPS:
        return ObjectField(**optional)
    if isinstance(column, models.DateTimeField):
        return MomentField(**optional)
    if isinstance(column, models.BooleanField):
        return FlagField(**optional)
    if isinstance(column, models.IntegerField):
        return WholeField(min_value=0, **optional)
    if isinstance(column, models.CharField):
        return IdField(**optional)
    return TextField(**optional) if isinstance(column, models.TextField) else DocumentField(required=False)


class MergeInput(Input):
    writes = ObjectsField(help_text="StepWrites, or RFC 6902 operations.")


class StatusInput(Input):
    """A compare-and-set."""

    expected_statuses = TextsField(help_text="The statuses it may have now.")
    new_status = ChoiceText(SESSION_STATUSES)
    interrupt_context = DocumentField(required=False)
    error = DocumentField(required=False, help_text="A string or an object.")
    failure_reason = TextField(required=False, allow_null=True)


class StatusUpdateInput(Input):
    """A status by decree."""

    status = ChoiceText(SESSION_STATUSES)
    error = DocumentField(required=False, help_text="A string or an object.")
    failure_reason = TextField(required=False, allow_null=True)
    interrupt_context = DocumentField(required=False)
    output = DocumentField(required=False)


class InterruptInput(Input):
    reason = TextField(required=False, allow_null=True)
