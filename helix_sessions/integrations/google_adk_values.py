"""Values of Google's ADK as JSON, for its sessions, memories and artifacts."""

from math import inf, isfinite
from typing import Any

from helix_sessions.integrations.extras import needed_from

with needed_from("google-adk"):
    from pydantic_core import to_jsonable_python


def to_json(value: Any, **options: Any) -> Any:
    """A value as JSON, as ADK writes it. What is not JSON becomes text: bytes that are no text are base64,
    lone surrogates U+FFFD, other values what `str` makes of them."""
    written = {"by_alias": False, "fallback": str, **options}
    try:
        found = to_jsonable_python(value, **written)
    except UnicodeDecodeError:
        found = to_jsonable_python(value, bytes_mode="base64", **written)
    return _plain(found)


def _plain(value: Any) -> Any:
    """A value with names for the numbers that JSON has not, and without lone surrogates."""
    if isinstance(value, float) and not isfinite(value):
        return {inf: "Infinity", -inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
