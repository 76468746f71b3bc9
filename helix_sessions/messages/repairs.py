"""Which tool calls a worker that died left without a result, out of a session's log."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from helix_sessions.messages.tool_ledger import (
    INTERRUPTED,
    TOOL_EVENTS,
    OpenCalls,
    ToolCall,
    calls_in,
    logged_call,
    logged_content,
    results_in,
    tool_message,
)

READ_TYPES = (
    *("user_message", "assistant_message", "tool_message"),
    *(*TOOL_EVENTS, "tool_retried", "messages_truncated"),
)


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

    call: ToolCall
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
        if event.type in TOOL_EVENTS:
            call = logged_call(event.data)
            change = found.update if event.type == "tool_responded" else found.difference_update
            change(() if call is None else (call["id"],))
        elif event.truncated_seq is None:
            found.difference_update(call["id"] for call in calls_in(event.data))
            if event.type == "tool_message" and not _is_error(event.data):
                found.update(results_in(event.data))
    return found


class _Book:
    """The calls without a result so far, in the transcript and in the log."""

    def __init__(self) -> None:
        self._in_transcript: OpenCalls[tuple[int, ToolCall]] = OpenCalls()
        self._in_log: OpenCalls[tuple[int, ToolCall]] = OpenCalls()
        self._logged_results: OpenCalls[LoggedEvent] = OpenCalls()
        self._undone: dict[str, int] = {}

    def enter(self, event: LoggedEvent) -> None:
        if event.type in TOOL_EVENTS:
            self._enter_logged(event)
        elif event.type == "messages_truncated":
            self._logged_results = OpenCalls()
        elif event.type == "tool_retried":
            pass  # the call was logged before, and is open until it has a result
        elif event.truncated_seq is None:
            self._enter_message(event)
        else:
            self._enter_truncated(event, event.truncated_seq)

    def close(self) -> list[Repair]:
        """The result of each open call."""
        found: list[tuple[int, Repair]] = []
        for seq, call in self._in_transcript:
            logged = self._logged_results.close(call["id"])
            found.append((seq, _failed(call) if logged is None else _carried(call, logged)))
            self._in_log.close(call["id"])
        found.extend((seq, _failed(call)) for seq, call in self._in_log)
        return [repair for _, repair in sorted(found, key=lambda numbered: numbered[0])]

    def _enter_message(self, event: LoggedEvent) -> None:
        self._in_transcript.follow(event.data, lambda _, call: (event.seq, call))
        for call_id in results_in(event.data):
            self._in_log.close(call_id)
            self._logged_results.close(call_id)

    def _enter_truncated(self, event: LoggedEvent, truncated_seq: int) -> None:
        """What a truncated message called is undone; what it answered had been answered."""
        for call in calls_in(event.data):
            self._undone[call["id"]] = truncated_seq
        for call_id in results_in(event.data):
            self._in_log.close(call_id)

    def _enter_logged(self, event: LoggedEvent) -> None:
        call = logged_call(event.data)
        if call is None:
            return
        call_id = call["id"]
        if event.type == "tool_called":
            if event.seq > self._undone.get(call_id, 0):
                self._in_log.open(call_id, (event.seq, call))
            return
        if call_id in self._in_transcript:
            self._logged_results.open(call_id, event)
        self._in_log.close(call_id)


def _failed(call: ToolCall) -> Repair:
    return Repair(call=call, message=tool_message(call, INTERRUPTED, is_error=True), is_new=True)


def _carried(call: ToolCall, result: LoggedEvent) -> Repair:
    content = logged_content(result.type, result.data)
    message = tool_message(call, content, is_error=result.type == "tool_error")
    native = result.data.get("message") if isinstance(result.data, dict) else None
    if isinstance(native, dict):  # a framework's own form of the result
        message = {**message, "message": native}
    return Repair(call=call, message=message, is_new=False)


def _is_error(data: Any) -> bool:
    return isinstance(data, dict) and bool(data.get("is_error"))
