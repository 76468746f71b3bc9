"""RFC 6902 operations as StepWrites.

`add` becomes an insert, or an append when its pointer ends in `-`; `replace` a set; `remove` a delete. They
are as lenient as these: `replace` creates what is missing, `remove` of something missing is no error.
"""

import re
from collections.abc import Mapping
from typing import Any

from helix_sessions.exceptions import InvalidWrites

_WITH_VALUE = {"add": "insert", "replace": "set"}
_REFUSED = frozenset({"test", "move", "copy"})
OPERATIONS = frozenset({*_WITH_VALUE, "remove"}) | _REFUSED

_BAD_ESCAPE = re.compile(r"~(?![01])")


def translate(operation: Mapping[str, Any]) -> dict[str, Any]:
    """The StepWrite an RFC 6902 operation stands for; `InvalidWrites` says why there is none.

    Members the RFC does not define for the operation are ignored, as it demands.
    """
    op = operation["op"]
    if op in _REFUSED:
        raise InvalidWrites(f"`{op}` of RFC 6902 is not supported")
    if "path" not in operation:
        raise InvalidWrites(f"`{op}` needs `path`")
    path = parse_pointer(operation["path"])
    if op == "remove":
        return {"op": "delete", "path": path}
    if "value" not in operation:
        raise InvalidWrites(f"`{op}` needs `value`")
    value = operation["value"]
    if not path:
        return {"op": "set", "path": path, "value": value}
    # The document itself is an object, where `-` is a name like any other.
    if op == "add" and path[-1] == "-" and len(path) > 1:
        return {"op": "append", "path": path[:-1], "values": [value]}
    return {"op": _WITH_VALUE[op], "path": path, "value": value}


def parse_pointer(pointer: Any) -> list[str]:
    """The parts of an RFC 6901 JSON Pointer; `InvalidWrites` when it is none."""
    if not isinstance(pointer, str):
        raise InvalidWrites(f"`path` is not a JSON Pointer but a {type(pointer).__name__}")
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise InvalidWrites(f"the JSON Pointer {pointer!r:.80} does not begin with `/`")
    if _BAD_ESCAPE.search(pointer):
        raise InvalidWrites(f"the JSON Pointer {pointer!r:.80} has a `~` that escapes nothing")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]
