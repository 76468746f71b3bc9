"""The classic message history, read out of a range of a session's log."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

from helix_sessions.messages.tool_ledger import calls_in, logged_content
from helix_sessions.types import DanglingCall, EventRecord, ProjectedMessage

_MESSAGES = {
    "user_message": "user",
    "assistant_message": "assistant",
    "system_message": "system",
    "tool_message": "tool",
}
_TOOL_EVENTS = {"tool_called": "tool_call", "tool_responded": "tool", "tool_error": "tool"}
_ROLES = _MESSAGES | _TOOL_EVENTS

# One call: its id, and how often this id had been called before in the range.
_CallKey: TypeAlias = tuple[str, int]


def project_messages(events: Iterable[EventRecord]) -> list[ProjectedMessage]:
    """The messages and tool traffic of `events`, in order, as a model or a reader would see them.

    The content of a tool event is its arguments, result or error; failing these, all its data but the call
    id. A call has one result: where the transcript has a tool message for it, that is what the model saw, and
    the `tool_responded` or `tool_error` of the same call is left out. A call that has no result in the range
    is `dangling`. Truncated messages are left out, and with an assistant message the events of the tools it
    called. Compaction changes nothing, and the message that a compaction made is not part of the history.
    """
    standing: list[EventRecord] = []
    for event in events:
        if event.type in _ROLES:
            standing.append(event)
        elif event.type == "messages_truncated":
            standing = _truncate(_one_result_per_call(standing), _data(event).get("removed"))
    shown = [event for event in _one_result_per_call(standing) if _data(event).get("kind") != "compaction"]
    dangling = _dangling(shown)
    return [_project(event, DanglingCall if event.seq in dangling else ProjectedMessage) for event in shown]


def _dangling(events: list[EventRecord]) -> set[int]:
    """The calls that nothing answers: the numbers of their events."""
    keys = _call_keys(events)
    paired = list(zip(events, keys, strict=True))
    answered = {key for event, key in paired if key is not None and _ROLES[event.type] == "tool"}
    return {event.seq for event, key in paired if event.type == "tool_called" and key not in answered}


def _project(event: EventRecord, kind: type[ProjectedMessage]) -> ProjectedMessage:
    return kind(
        role=_ROLES[event.type],
        content=_content(event),
        tool_call_id=_call_id(event),
        seq=event.seq,
        created_at=event.created_at,
    )


def _content(event: EventRecord) -> Any:
    if event.type in _MESSAGES:
        return _data(event).get("content")
    return logged_content(event.type, event.data)


def _truncate(events: list[EventRecord], removed: Any) -> list[EventRecord]:
    # Counted from the end: how many messages there were before the range is not known here.
    if not isinstance(removed, int) or removed <= 0:
        return events
    messages = [index for index, event in enumerate(events) if _is_in_transcript(event)]
    truncated = set(messages[-removed:])
    keys = _call_keys(events)
    latest = {key[0]: key for key in keys if key is not None}
    undone = {latest.get(call["id"]) for index in truncated for call in calls_in(_as_message(events[index]))}
    return [
        event
        for index, (event, key) in enumerate(zip(events, keys, strict=True))
        if index not in truncated and not (event.type in _TOOL_EVENTS and key is not None and key in undone)
    ]


def _one_result_per_call(events: list[EventRecord]) -> list[EventRecord]:
    keys = _call_keys(events)
    answered = {
        key
        for event, key in zip(events, keys, strict=True)
        if key is not None and event.type == "tool_message"
    }
    return [
        event
        for event, key in zip(events, keys, strict=True)
        if key not in answered or event.type not in ("tool_responded", "tool_error")
    ]


def _call_keys(events: list[EventRecord]) -> list[_CallKey | None]:
    """For each event the call it belongs to; where an id comes again, `tool_called` tells the calls apart."""
    times_called: Counter[str] = Counter()
    keys: list[_CallKey | None] = []
    for event in events:
        call_id = _call_id(event)
        if call_id is not None and event.type == "tool_called":
            times_called[call_id] += 1
        keys.append(None if call_id is None else (call_id, times_called[call_id]))
    return keys


def _is_in_transcript(event: EventRecord) -> bool:
    """A message type emitted without content is logged and is no message; an appended one has its role."""
    data = _data(event)
    return event.type in _MESSAGES and ("content" in data or "role" in data)


def _as_message(event: EventRecord) -> dict[str, Any]:
    return {**_data(event), "role": _ROLES[event.type]}


def _call_id(event: EventRecord) -> str | None:
    call_id = _data(event).get("tool_call_id")
    return call_id if isinstance(call_id, str) else None


def _data(event: EventRecord) -> dict[str, Any]:
    return event.data if isinstance(event.data, dict) else {}
