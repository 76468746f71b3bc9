"""Values with messages in them as JSON, and those messages by their places once they have been said."""

from collections.abc import Callable, Iterable
from typing import Any

from helix_sessions import documents
from helix_sessions.integrations.langgraph.messages import DEEPEST, NAMES, by_fields, from_fields, is_plain
from helix_sessions.types import JSON

Find = Callable[[int, str], dict[str, JSON]]
"""The message at a place of the transcript, if its text still has this digest."""

_WORTH_REFERRING = 64


class Said:
    """Messages that are new in the transcript, with their places. What has them too says where they are."""

    def __init__(self, messages: Iterable[tuple[int, dict[str, JSON]]] = ()) -> None:
        self._messages = list(messages)
        self._places = {
            message["content"]: (place, message)
            for place, message in self._messages
            if type(message.get("content")) is str and len(message["content"]) >= _WORTH_REFERRING
        }

    def then(self, more: "Said", most: int) -> "Said":
        """The last ones of these and those."""
        return Said([*self._messages, *more._messages][-most:])

    def refer(self, tree: JSON) -> JSON:
        """The tree with places for what was said: `{"!m": place}` for a message, `{"!c": place}` for a
        content."""
        if not self._messages:
            return tree
        if isinstance(tree, str):
            return {"!c": _place(*self._places[tree])} if tree in self._places else tree
        if isinstance(tree, list):
            return [self.refer(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        for place, message in self._messages:
            if tree.get("!m") == message:
                return {"!m": _place(place, message)}
        return {name: self.refer(item) for name, item in tree.items()}


NOTHING_SAID = Said()


def digest(text: str) -> str:
    return documents.digest(text)[:12]


def _place(place: int, message: JSON) -> JSON:
    return [place, digest(documents.dump(message))]


class NotATree(Exception):
    """A value that only a serializer can bring back."""


def is_tree(value: JSON) -> bool:
    """Whether nothing in a plain value would be taken for one of our marks."""
    if isinstance(value, dict):
        return not any(name.startswith("!") for name in value) and all(map(is_tree, value.values()))
    return all(map(is_tree, value)) if isinstance(value, list) else True


def tree_of(value: Any, depth: int = 0) -> JSON:
    """Anything made of JSON and messages (`{"!m": …}`). Tuples become lists, as in LangGraph's serializer."""
    kind = type(value)
    if depth > DEEPEST:
        raise NotATree
    if kind is dict:
        if not all(type(name) is str and is_plain(name) and not name.startswith("!") for name in value):
            raise NotATree
        return {name: tree_of(item, depth + 1) for name, item in value.items()}
    if kind in (list, tuple):
        return [tree_of(item, depth + 1) for item in value]
    message = by_fields(value) if kind in NAMES else None
    if message is not None and is_tree(message):
        return {"!m": message}
    if not is_plain(value):
        raise NotATree
    return value


def from_tree(tree: JSON, find: Find | None) -> Any:
    if isinstance(tree, list):
        return [from_tree(item, find) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "!c" in tree:
        return _found(tree["!c"], find)["content"]
    if "!m" in tree:
        message = tree["!m"]
        return from_fields(_found(message, find) if isinstance(message, list) else from_tree(message, find))
    return {name: from_tree(item, find) for name, item in tree.items()}


def _found(place: list[Any], find: Find | None) -> dict[str, JSON]:
    if find is None:
        raise LookupError("What was said is needed to read this.")
    return find(*place)
