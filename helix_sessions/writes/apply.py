"""Writes applied to a document."""

import re
from typing import Any

from helix_sessions.exceptions import InvalidWrites
from helix_sessions.writes.steps import Path, Write, parse_writes

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
_MISSING: Any = object()
_MAX_DEPTH = 10_000


def apply_writes(document: dict[str, Any], writes: Any) -> dict[str, Any]:
    """The document after all `writes`, in order; `InvalidWrites` names the one that cannot be applied.

    `writes` is what `parse_writes` takes. `document` is left as it is: the result shares the branches no
    write touched with it, and nothing with `writes`. A missing parent becomes an object, also under a number.
    """
    draft = _Draft(document)
    for index, write in enumerate(parse_writes(writes)):
        try:
            draft.write(write)
        except InvalidWrites as error:
            raise InvalidWrites(
                f"Write {index} ({write['op']} at {write['path']!r:.200}): {error}."
            ) from None
    return draft.document


class _Draft:
    """A document in the making, which copies a container the first time it is written to."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        # By identity; held here so that no identity is handed out again.
        self._own: dict[int, Any] = {}

    def write(self, write: Write) -> None:
        op, path = write["op"], write["path"]
        if op == "delete":
            if _exists(self.document, path):
                parent = self._reach(path[:-1])
                del parent[_index(parent, path[-1]) if isinstance(parent, list) else str(path[-1])]
        elif not path:
            self.document = _copy(write["value"])
        elif op == "append":
            self._reach(path, kind=list).extend(_copy(write["values"]))
        else:
            parent = self._reach(path[:-1])
            if op == "insert" and isinstance(parent, list):
                parent.insert(_index(parent, path[-1]), _copy(write["value"]))
            else:
                _put(parent, path[-1], _copy(write["value"]))

    def _reach(self, path: Path, kind: type[Any] = dict) -> Any:
        """The container at `path`, made when missing (the last one as a `kind`) and safe to change."""
        self.document = container = self._mine(self.document)
        for depth, key in enumerate(path, 1):
            last = depth == len(path)
            child = _get(container, key)
            if child is _MISSING or child is None:
                child = kind() if last else {}
                self._own[id(child)] = child
            elif not isinstance(child, dict | list):
                raise InvalidWrites(f"a {type(child).__name__} stands in its way")
            elif last and kind is list and not isinstance(child, list):
                raise InvalidWrites("only a list can be appended to")
            else:
                child = self._mine(child)
            _put(container, key, child)
            container = child
        return container

    def _mine(self, container: Any) -> Any:
        if id(container) not in self._own:
            container = container.copy()
            self._own[id(container)] = container
        return container


def _index(items: list[Any], key: str | int) -> int:
    """The position `key` means in `items`, their length included."""
    if isinstance(key, str):
        if not _INDEX.fullmatch(key):
            raise InvalidWrites(f"{key!r:.80} is not an index of a list")
        key = int(key)
    if not 0 <= key <= len(items):
        raise InvalidWrites(f"the index {key} is outside a list of {len(items)}")
    return key


def _get(container: Any, key: str | int) -> Any:
    if isinstance(container, dict):
        return container.get(str(key), _MISSING)
    index = _index(container, key)
    return container[index] if index < len(container) else _MISSING


def _put(container: Any, key: str | int, value: Any) -> None:
    if isinstance(container, dict):
        container[str(key)] = value
    elif (index := _index(container, key)) < len(container):
        container[index] = value
    else:
        container.append(value)


def _exists(value: Any, path: Path) -> bool:
    for key in path:
        if not isinstance(value, dict | list):
            return False
        try:
            value = _get(value, key)
        except InvalidWrites:
            return False
    return value is not _MISSING


def _copy(value: Any) -> Any:
    """A copy down to the last container; tuples become lists, as they would in JSON."""
    holder = [value]
    stack: list[tuple[Any, int]] = [(holder, 0)]
    while stack:
        container, depth = stack.pop()
        if depth > _MAX_DEPTH:
            raise InvalidWrites("the value is nested too deeply, or holds itself")
        for key, child in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(child, dict | list | tuple):
                container[key] = dict(child) if isinstance(child, dict) else list(child)
                stack.append((container[key], depth + 1))
    return holder[0]
