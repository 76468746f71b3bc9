"""Which tool calls a worker that died left without a result, out of a session's log."""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from helix_sessions.messages.projection import tool_content
from helix_sessions.transcripts import INTERRUPTED, ToolCall, calls_in, results_in

LOGGED_TYPES = ("tool_called", "tool_responded", "tool_error")
READ_TYPES = ("user_message", "assistant_message", "tool_message", *LOGGED_TYPES, "messages_truncated")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """An event of one of the `READ_TYPES`."""

    seq: int
    type: str
    data: Any
    truncated_seq: int | None = None
    """For a message: the event that took it out of the transcript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The result that a call is given."""

    message: dict[str, Any]
    is_new: bool
    """False when the log has the result and only the transcript lacks it."""


def repairs(events: Iterable[LoggedEvent], waiting: Collection[str] = ()) -> list[Repair]:
    """The results to add so that no call is without one, in the order of the calls.

    A call is in an assistant message, in the log, or in both; `waiting` are the ids of calls whose answer
    is still to come from somewhere else. A call whose result was logged is given that result.
    """
    book = _Book()
    for event in events:
        book.enter(event)
    return [repair for repair in book.close() if repair.message["tool_call_id"] not in waiting]


def answered(events: Iterable[LoggedEvent]) -> set[str]:
    """The ids of the calls that have a result which is no error, logged or in the transcript. An id that
    comes again is the last call of it."""
    found: set[str] = set()
    for event in events:
        data = event.data if isinstance(event.data, dict) else {}
        if event.type in LOGGED_TYPES:
            change = found.update if event.type == "tool_responded" else found.difference_update
            change(call_id for call_id in (data.get("tool_call_id"),) if isinstance(call_id, str))
        elif event.truncated_seq is None:
            found.difference_update(call["id"] for call in calls_in(data))
            if event.type == "tool_message" and not data.get("is_error"):
                found.update(results_in(data))
    return found


class _Book:
    """Calls without a result so far. Providers may use an id again: results answer the earliest open call."""

    def __init__(self) -> None:
        self._in_transcript: defaultdict[str, deque[tuple[int, ToolCall]]] = defaultdict(deque)
        self._in_log: defaultdict[str, deque[tuple[int, ToolCall]]] = defaultdict(deque)
        self._logged_results: defaultdict[str, deque[LoggedEvent]] = defaultdict(deque)
        self._undone: dict[str, int] = {}

    def enter(self, event: LoggedEvent) -> None:
        if event.type in LOGGED_TYPES:
            self._enter_logged(event)
        elif event.type == "messages_truncated":
            self._logged_results.clear()
        elif event.truncated_seq is None:
            self._enter_message(event)
        else:
            self._enter_truncated(event, event.truncated_seq)

    def close(self) -> list[Repair]:
        """The result of each open call."""
        found: list[tuple[int, Repair]] = []
        for call_id, calls in self._in_transcript.items():
            for seq, call in calls:
                logged = self._logged_results[call_id]
                found.append((seq, _carried(call, logged.popleft()) if logged else _failed(call)))
                if self._in_log[call_id]:
                    self._in_log[call_id].popleft()
        found.extend((seq, _failed(call)) for calls in self._in_log.values() for seq, call in calls)
        return [repair for _, repair in sorted(found, key=lambda numbered: numbered[0])]

    def _enter_message(self, event: LoggedEvent) -> None:
        for call in calls_in(event.data):
            self._in_transcript[call["id"]].append((event.seq, call))
        for call_id in results_in(event.data):
            for places in (self._in_transcript, self._in_log, self._logged_results):
                if places[call_id]:
                    places[call_id].popleft()

    def _enter_truncated(self, event: LoggedEvent, truncated_seq: int) -> None:
        """What a truncated message called is undone; what it answered had been answered."""
        for call in calls_in(event.data):
            self._undone[call["id"]] = truncated_seq
        for call_id in results_in(event.data):
            if self._in_log[call_id]:
                self._in_log[call_id].popleft()

    def _enter_logged(self, event: LoggedEvent) -> None:
        data = event.data if isinstance(event.data, dict) else {}
        call_id = data.get("tool_call_id")
        if not isinstance(call_id, str) or not call_id:
            return
        if event.type == "tool_called":
            if event.seq > self._undone.get(call_id, 0):
                name = data.get("tool_name", data.get("name"))
                call = {"id": call_id, "name": name if isinstance(name, str) else ""}
                self._in_log[call_id].append((event.seq, call))
            return
        if self._in_transcript[call_id]:
            self._logged_results[call_id].append(event)
        if self._in_log[call_id]:
            self._in_log[call_id].popleft()


def _failed(call: ToolCall) -> Repair:
    return Repair(message=_message(call, INTERRUPTED, is_error=True), is_new=True)


def _carried(call: ToolCall, result: LoggedEvent) -> Repair:
    content = tool_content(result.type, result.data)
    return Repair(message=_message(call, content, is_error=result.type == "tool_error"), is_new=False)


def _message(call: ToolCall, content: Any, *, is_error: bool) -> dict[str, Any]:
    message = {"role": "tool", "tool_call_id": call["id"], "tool_name": call["name"], "content": content}
    return {**message, "is_error": True} if is_error else message
