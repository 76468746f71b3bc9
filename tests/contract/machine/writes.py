"""StepWrites as the contract words them, the plain way: on a copy, one write after the other."""

from copy import deepcopy
from typing import Any


class CannotApply(Exception):
    """A write does not fit the document, or is no write."""


def apply(document: dict[str, Any], writes: list[dict[str, Any]]) -> dict[str, Any]:
    """The document after the writes."""
    result = deepcopy(document)
    for write in writes:
        result = _apply(result, _as_step(write))
    return result


def as_steps(writes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The writes with RFC 6902 operations turned into StepWrites."""
    return [_as_step(write) for write in writes]


def _as_step(write: dict[str, Any]) -> dict[str, Any]:
    if write["op"] in ("set", "append", "insert", "delete"):
        return write
    if write["op"] not in ("add", "replace", "remove"):
        raise CannotApply(write)
    path = [part.replace("~1", "/").replace("~0", "~") for part in write["path"].split("/")[1:]]
    if write["op"] == "remove":
        return {"op": "delete", "path": path}
    if write["op"] == "add" and len(path) > 1 and path[-1] == "-":
        return {"op": "append", "path": path[:-1], "values": [write["value"]]}
    return {"op": "insert" if write["op"] == "add" and path else "set", "path": path, "value": write["value"]}


def _apply(document: dict[str, Any], write: dict[str, Any]) -> dict[str, Any]:
    op, path = write["op"], list(write["path"])
    if not path:
        if op != "set" or not isinstance(write["value"], dict):
            raise CannotApply(write)
        return deepcopy(write["value"])
    if op == "delete":
        _delete(document, path)
        return document
    if op == "append":
        parent = _walk(document, path[:-1])
        items = _look(parent, path[-1])
        if items is None:
            items = []
            _put(parent, path[-1], items)
        if not isinstance(items, list):
            raise CannotApply(write)
        items.extend(deepcopy(write["values"]))
        return document
    parent = _walk(document, path[:-1])
    if op == "insert" and isinstance(parent, list):
        parent.insert(_index(parent, path[-1]), deepcopy(write["value"]))
    else:
        _put(parent, path[-1], deepcopy(write["value"]))
    return document


def _walk(container: Any, path: list[Any]) -> Any:
    """The container at the path; missing ones become objects."""
    for key in path:
        below = _look(container, key)
        if below is None:
            below = {}
            _put(container, key, below)
        if not isinstance(below, dict | list):
            raise CannotApply(key)
        container = below
    return container


def _look(container: Any, key: Any) -> Any:
    """What is there; `None` counts as missing."""
    if isinstance(container, dict):
        return container.get(str(key))
    index = _index(container, key)
    return container[index] if index < len(container) else None


def _put(container: Any, key: Any, value: Any) -> None:
    if isinstance(container, dict):
        container[str(key)] = value
        return
    index = _index(container, key)
    container[index : index + 1] = [value]


def _index(items: list[Any], key: Any) -> int:
    if isinstance(key, str) and not (key == "0" or (key.isdigit() and key.isascii() and key[0] != "0")):
        raise CannotApply(key)
    if not 0 <= int(key) <= len(items):
        raise CannotApply(key)
    return int(key)


def _delete(container: Any, path: list[Any]) -> None:
    """Anything that is not there is no error."""
    for key in path[:-1]:
        try:
            container = _look(container, key)
        except CannotApply:
            return
        if not isinstance(container, dict | list):
            return
    if isinstance(container, dict):
        container.pop(str(path[-1]), None)
        return
    try:
        index = _index(container, path[-1])
    except CannotApply:
        return
    del container[index : index + 1]
