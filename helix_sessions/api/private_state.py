"""What a participant does not see of a state: the top-level keys that `PRIVATE_STATE_KEYS` names."""

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any, TypeVar, cast

from helix_sessions.api.policy import sees_all
from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.types import Checkpoint, Page, Resumption, SessionState, StagedChange, Turn

T = TypeVar("T")

CARRIES_STATE = "state_merged"
"""The one type of event that says what was written to a state."""


def keys_hidden_from(user: Any) -> Collection[str]:
    """The keys that this user does not see; empty for drivers and operators, and where none is private."""
    return () if not conf.PRIVATE_STATE_KEYS or sees_all(user) else conf.PRIVATE_STATE_KEYS


def without(value: T, hidden: Collection[str]) -> T:
    """A value of the store, or a page of them, without these keys of the states in it."""
    if not hidden:
        return value
    shown: Any = value
    match value:
        case SessionState():
            shown = replace(value, custom_state=_kept(value.custom_state, hidden))
        case Checkpoint() | Turn() | Resumption():
            shown = replace(value, state=without(value.state, hidden))
        case StagedChange():
            shown = replace(value, writes=_seen(value.writes, hidden))
        case Page():
            shown = replace(value, items=[without(each, hidden) for each in value.items])
        case {"checkpoint": found}:
            shown = {"checkpoint": without(found, hidden)}
    return cast(T, shown)


def event_text(text: str, hidden: Collection[str]) -> str:
    """The JSON text of an event without writes to these keys."""
    if not hidden or f'"{CARRIES_STATE}"' not in text:
        return text
    event = documents.load(text)
    if event["type"] != CARRIES_STATE or not isinstance(event["data"], dict):
        return text
    writes = event["data"].get("writes")
    if isinstance(writes, list):
        event["data"] = {**event["data"], "writes": _seen(writes, hidden)}
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def _seen(writes: list[Any], hidden: Collection[str]) -> list[Any]:
    return [_shown(write, hidden) for write in writes if not _is_private(write, hidden)]


def _is_private(write: Any, hidden: Collection[str]) -> bool:
    path = write.get("path") if isinstance(write, dict) else None
    return isinstance(path, list) and bool(path) and str(path[0]) in hidden


def _shown(write: Any, hidden: Collection[str]) -> Any:
    """A write to the whole document carries every key of it."""
    if isinstance(write, dict) and not write.get("path") and isinstance(write.get("value"), dict):
        return {**write, "value": _kept(write["value"], hidden)}
    return write


def _kept(document: dict[str, Any], hidden: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in hidden}
