"""The shape of a write: what is well formed, and its one canonical form."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from helix_sessions.exceptions import InvalidWrites
from helix_sessions.writes import json_patch

Write: TypeAlias = dict[str, Any]
Path: TypeAlias = list[str | int]

# What each operation carries besides `op` and `path`.
_PAYLOADS: dict[str, str | None] = {"set": "value", "append": "values", "insert": "value", "delete": None}

_MAX_INTEGER_BITS = 1024


def parse_writes(value: Any) -> list[Write]:
    """The writes in canonical form, or `InvalidWrites` naming the first malformed one.

    Each element is a StepWrite or an RFC 6902 operation, told apart by its `op`; the two may be mixed. The
    values inside are the caller's own objects, not copies. Whether a write fits a document, `apply_writes`
    finds out.
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        raise InvalidWrites(f"Writes are a list, not a {type(value).__name__}.")
    writes = []
    for index, write in enumerate(value):
        try:
            writes.append(_parse(write))
        except InvalidWrites as error:
            raise InvalidWrites(f"Write {index}: {error}.") from None
    return writes


def _parse(write: Any) -> Write:
    if not isinstance(write, Mapping):
        raise InvalidWrites(f"it is not an object but a {type(write).__name__}")
    op = write.get("op")
    if not isinstance(op, str):
        raise InvalidWrites("its `op` is not a string")
    if op in json_patch.OPERATIONS:
        write = json_patch.translate(write)
        op = write["op"]
    if op not in _PAYLOADS:
        raise InvalidWrites(f"the operation {op!r:.80} is not known")
    payload = _PAYLOADS[op]
    keys = ("op", "path") if payload is None else ("op", "path", payload)
    for key in keys:
        if key not in write:
            raise InvalidWrites(f"`{op}` needs `{key}`")
    for key in write:
        if key not in keys:
            raise InvalidWrites(f"`{op}` takes nothing but {', '.join(f'`{known}`' for known in keys)}")
    parsed: Write = {"op": op, "path": _parse_path(write["path"])}
    if payload is not None:
        parsed[payload] = write[payload]
    if op == "append":
        parsed["values"] = _parse_values(write["values"])
    if not parsed["path"] and not (op == "set" and isinstance(parsed["value"], dict)):
        raise InvalidWrites("the whole document may only be set, to an object")
    return parsed


def _parse_path(path: Any) -> Path:
    if not isinstance(path, list | tuple):
        raise InvalidWrites(f"`path` is not a list but a {type(path).__name__}")
    for part in path:
        if isinstance(part, bool) or not isinstance(part, str | int):
            raise InvalidWrites(f"`path` holds a {type(part).__name__}; strings and integers may be in it")
        if isinstance(part, int) and part.bit_length() > _MAX_INTEGER_BITS:
            raise InvalidWrites("`path` holds an integer that is too large")
    return list(path)


def _parse_values(values: Any) -> list[Any]:
    if not isinstance(values, list | tuple):
        raise InvalidWrites(f"`values` is not a list but a {type(values).__name__}")
    return list(values)
