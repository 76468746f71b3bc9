"""The JSON Schema that the result of a client's tool must fit. Its cost is bounded when it is given: it is
small, refers to nothing outside itself and not to itself, and its patterns take linear time."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from helix_sessions.exceptions import InvalidInput, NotConfigured

try:
    import jsonschema_rs
except ImportError:  # the extra `response-schemas`
    jsonschema_rs = None  # type: ignore[assignment]

MAX_BYTES = 32 * 1024
MAX_PARTS = 2_000
"""So many objects and lists a schema may have, where each reference counts as what it refers to."""
MAX_DEPTH = 64

_MISSING = (
    "A response_schema needs a package that is not installed. Install it with: "
    'pip install "django-helix-sessions[response-schemas]"'
)
_REFERENCES = ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$recursiveAnchor")
_WORDS = 300


def check(schema: Any) -> dict[str, Any]:
    """The schema as plain JSON, or `InvalidInput` that says what is wrong with it."""
    if not isinstance(schema, Mapping):
        raise InvalidInput("A response_schema must be a JSON Schema object.")
    try:
        text = json.dumps(dict(schema), allow_nan=False)
        plain: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput("A response_schema must be JSON.") from None
    if len(text) > MAX_BYTES:
        raise InvalidInput(f"A response_schema has {len(text):,} bytes; {MAX_BYTES:,} are allowed.")
    _count(plain, plain, ())
    _validator(plain)
    return plain


def misfit(schema: Mapping[str, Any], value: Any) -> str | None:
    """What keeps a value from fitting the schema; `None` if it fits."""
    validator = _validator(schema)
    if validator.is_valid(value):
        return None
    error = next(iter(validator.iter_errors(value)))
    place = "".join(f"[{part!r:.80}]" for part in error.instance_path)
    return f"result{place}: {error.message}"[:_WORDS]


def _validator(schema: Mapping[str, Any]) -> Any:
    if jsonschema_rs is None:
        raise NotConfigured(_MISSING)
    try:
        return jsonschema_rs.validator_for(
            dict(schema), retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        said = str(error).partition("\n")[0][:_WORDS]
        raise InvalidInput(f"The response_schema is no JSON Schema: {said}") from None


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri!r:.80} is not a part of it")


def _count(schema: Any, root: dict[str, Any], within: tuple[str, ...], depth: int = 0, count: int = 0) -> int:
    """How many parts a schema has with its references followed; refuses what has no bound."""
    count += 1
    if count > MAX_PARTS or depth > MAX_DEPTH:
        raise InvalidInput(f"A response_schema may have {MAX_PARTS:,} parts, nested {MAX_DEPTH} deep.")
    if isinstance(schema, dict):
        if any(name in schema for name in _REFERENCES) or ("$id" in schema and depth):
            raise InvalidInput("A response_schema refers to its parts by $ref alone.")
        target = schema.get("$ref")
        if isinstance(target, str):
            if target in within:
                raise InvalidInput(f"A response_schema refers to itself: {target!r:.80}.")
            count = _count(_part(root, target), root, (*within, target), depth + 1, count)
    parts = schema.values() if isinstance(schema, dict) else schema
    for part in parts:
        if isinstance(part, dict | list):
            count = _count(part, root, within, depth + 1, count)
    return count


def _part(root: dict[str, Any], pointer: str) -> Any:
    """What a reference like `#/$defs/name` refers to."""
    found: Any = root
    for name in pointer.split("/")[1:]:
        found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    if not pointer.startswith("#/") or not isinstance(found, dict):
        raise InvalidInput(f"A response_schema refers to nothing outside itself, but has {pointer!r:.80}.")
    return found
