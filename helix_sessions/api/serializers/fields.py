"""Fields that take a value as it is, or refuse it: nothing is trimmed, converted or parsed."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rest_framework import serializers
from rest_framework.fields import empty

from helix_sessions.api import oas

MAX_ID = 255
MAX_CHECKPOINT_ID = 512


class Input(serializers.Serializer[Any]):
    """An object without unknown keys."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = sorted(str(key) for key in set(data) - set(self.fields))
            if unknown:
                raise serializers.ValidationError({name: ["This key is not known here."] for name in unknown})
        return super().to_internal_value(data)


class _AsItIs:
    """A field that only looks at the type of its value."""

    kind: tuple[type, ...] = (object,)
    wanted = "a value"

    def run_validation(self, data: Any = empty) -> Any:
        is_empty, value = self.validate_empty_values(data)  # type: ignore[attr-defined]
        if is_empty:
            return value
        if not isinstance(value, self.kind) or (isinstance(value, bool) and bool not in self.kind):
            raise serializers.ValidationError([f"This must be {self.wanted}."])
        return value


class TextField(_AsItIs, serializers.CharField):
    kind, wanted = (str,), "a string"


class WholeField(_AsItIs, serializers.IntegerField):
    kind, wanted = (int,), "an integer"


class FlagField(_AsItIs, serializers.BooleanField):
    kind, wanted = (bool,), "true or false"


class ObjectField(_AsItIs, serializers.DictField):
    kind, wanted = (dict,), "an object"


class ObjectsField(_AsItIs, serializers.ListField):
    child = ObjectField()
    kind, wanted = (list,), "a list of objects"


class TextsField(_AsItIs, serializers.ListField):
    child = TextField()
    kind, wanted = (list,), "a list of strings"


class DocumentField(serializers.JSONField):
    """Any JSON value, null included."""

    def run_validation(self, data: Any = empty) -> Any:
        return self.validate_empty_values(data)[1] if data is empty else data


class MomentField(serializers.DateTimeField):
    """A time that says its offset."""

    def to_internal_value(self, value: Any) -> datetime:
        if not isinstance(value, str):
            raise serializers.ValidationError(["This must be a time in ISO 8601, with an offset."])
        return super().to_internal_value(value)

    def enforce_timezone(self, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise serializers.ValidationError(["A time needs an offset, such as `Z`."])
        return value


class IdField(TextField):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": MAX_ID, "min_length": 1, **options})


class CheckpointIdField(IdField):
    """The id of a checkpoint, or null."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=MAX_CHECKPOINT_ID, required=False, allow_null=True, **options)


class ChoiceText(serializers.ChoiceField):
    """One of some words. Which, the store checks; here they are for the schema."""

    def run_validation(self, data: Any = empty) -> Any:
        is_empty, value = self.validate_empty_values(data)
        if is_empty:
            return value
        if not isinstance(value, str) or value not in self.choices:
            raise serializers.ValidationError([f"This must be one of {', '.join(self.choices)}."])
        return value


def shaped(field: type[DocumentField], schema: dict[str, Any]) -> type[DocumentField]:
    """The field with a narrower description in the schema."""
    annotation = {"field": oas.written(schema), "field_component_name": None}
    return type(field.__name__, (field,), {"_spectacular_annotation": annotation})
