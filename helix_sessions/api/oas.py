"""Our schemas are those of OpenAPI 3.1. The default of drf-spectacular is 3.0, which says some otherwise."""

from typing import Any

Schema = dict[str, Any]

try:
    from drf_spectacular.settings import spectacular_settings
except ImportError:  # pragma: no cover - the extra `schema` is not installed
    spectacular_settings = None  # type: ignore[assignment]

_NULL = {"type": "null"}


def written(schema: Schema) -> Schema:
    """The schema in the version of the project's document."""
    if spectacular_settings is None or not spectacular_settings.OAS_VERSION.startswith("3.0"):
        return schema
    said: Schema = _in_3_0(schema)
    return said


def _in_3_0(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_in_3_0(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    said = {name: _in_3_0(value) for name, value in schema.items() if name != "prefixItems"}
    if "const" in said:
        said["enum"] = [said.pop("const")]
    types = said.get("type")
    choices = said.pop("oneOf", None)
    if isinstance(types, list):
        del said["type"]
        choices = [{"type": each} for each in types]
    if choices is None:
        return said
    kept = [each for each in choices if each != _NULL]
    if len(kept) < len(choices):
        said["nullable"] = True
    return {**said, **kept[0]} if len(kept) == 1 else {**said, "oneOf": kept}
