"""AG-UI 1.0: an answer as its events, a transcript as its messages, and what a client sends to go on."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from helix_sessions.api.frontends.answers import CallAnswer
from helix_sessions.api.frontends.following import Standing, WaitingCall, pending_messages
from helix_sessions.content import documents
from helix_sessions.messages.narration import (
    Answered,
    ArgumentsPiece,
    Called,
    MessageEnded,
    Progress,
    Said,
    StepBegan,
    StepEnded,
    Subagent,
    Told,
    Withdrawn,
    arguments_of,
    message_id,
    said_id,
    text_of,
)
from helix_sessions.messages.tool_ledger import calls_in
from helix_sessions.store import SessionStore
from helix_sessions.store.transcript import exchanges

_SNAPSHOT = 500
"""How many messages a snapshot has at most."""


class Refused(Exception):
    """What a client sent to go on does not answer what is open."""


class AGUIStream:
    """An answer as events."""

    headers: dict[str, str] = {}

    def __init__(
        self, store: SessionStore, session_id: str, thread_id: str, run_id: str, hidden: Iterable[str] = ()
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._run = {"threadId": thread_id, "runId": run_id}
        self._hidden = frozenset(hidden)
        self._opening: list[dict[str, Any]] = []
        self._snapshot: list[dict[str, Any]] = []
        self._open: tuple[bool, str] | None = None
        """The message that is being said: whether it is reasoning, and its id."""
        self._started: set[str] = set()
        self._steps = 0
        self._step: str | None = None

    def open_with_snapshot(self, before: int | None) -> None:
        """Begin with the state and the messages, or with those before a position."""
        self._opening = self._snapshots(before)

    def begin(self) -> bytes:
        return _frames({"type": "RUN_STARTED", **self._run}, *self._opening)

    def look(self, now: Standing) -> None:
        """Read what the end says, in a thread that may."""
        if now.waiting:
            self._snapshot = self._snapshots(None)

    def tell(self, told: Told) -> bytes:
        return _frames(*self._events(told))

    def waits(self, calls: Iterable[WaitingCall]) -> bytes:
        outcome = {"type": "interrupt", "interrupts": [_interrupt(call) for call in calls]}
        finished = {"type": "RUN_FINISHED", **self._run, "outcome": outcome}
        return _frames(*self._close(), *self._end_step(), *self._snapshot, finished)

    def end(self, status: str, error: str) -> bytes:
        events = [*self._close(), *self._end_step()]
        if error:
            return _frames(*events, {"type": "RUN_ERROR", "message": error, "code": status})
        outcome = {"type": "success" if status in ("completed", "waiting") else "cancelled"}
        return _frames(*events, {"type": "RUN_FINISHED", **self._run, "outcome": outcome})

    def _events(self, told: Told) -> list[dict[str, Any]]:
        match told:
            case StepBegan():
                self._steps += 1
                self._step = f"step-{self._steps}"
                return [{"type": "STEP_STARTED", "stepName": self._step}]
            case StepEnded():
                return [*self._close(), *self._end_step()]
            case Said():
                return self._said(told)
            case ArgumentsPiece():
                return self._arguments(told)
            case MessageEnded():
                return self._close()
            case Called():
                return self._called(told)
            case Answered():
                return [_result(told)]
            case Withdrawn():
                value = {"attempt": told.attempt, "error": told.error, "retryAt": told.retry_at}
                return [*self._close(), {"type": "CUSTOM", "name": "model_call_failed", "value": value}]
            case Subagent():
                value = {
                    "sessionId": told.session_id,
                    "agentType": told.agent_type,
                    "toolCallId": told.call_id,
                    "status": told.status,
                }
                return [{"type": "CUSTOM", "name": "subagent", "value": value}]
            case Progress():
                return [{"type": "CUSTOM", "name": "progress", "value": told.data}]
        return []

    def _said(self, said: Said) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        if self._open is None or self._open[0] != said.is_reasoning:
            events = self._close()
            if said.is_reasoning:
                self._open = (True, f"{said.message_id}-reasoning")
                named = {"messageId": self._open[1]}
                events.append({"type": "REASONING_START", **named})
                events.append({"type": "REASONING_MESSAGE_START", **named, "role": "reasoning"})
            else:
                self._open = (False, said.message_id)
                start = {"messageId": said.message_id, "role": "assistant"}
                events.append({"type": "TEXT_MESSAGE_START", **start})
        kind = "REASONING_MESSAGE_CONTENT" if said.is_reasoning else "TEXT_MESSAGE_CONTENT"
        return [*events, {"type": kind, "messageId": self._open[1], "delta": said.text}]

    def _close(self) -> list[dict[str, Any]]:
        if self._open is None:
            return []
        (is_reasoning, name), self._open = self._open, None
        if not is_reasoning:
            return [{"type": "TEXT_MESSAGE_END", "messageId": name}]
        return [
            {"type": "REASONING_MESSAGE_END", "messageId": name},
            {"type": "REASONING_END", "messageId": name},
        ]

    def _end_step(self) -> list[dict[str, Any]]:
        if self._step is None:
            return []
        name, self._step = self._step, None
        return [{"type": "STEP_FINISHED", "stepName": name}]

    def _arguments(self, piece: ArgumentsPiece) -> list[dict[str, Any]]:
        events = self._close()
        if piece.call_id not in self._started:
            self._started.add(piece.call_id)
            start = {"toolCallId": piece.call_id, "toolCallName": piece.name}
            if piece.message_id:
                start["parentMessageId"] = piece.message_id
            events.append({"type": "TOOL_CALL_START", **start})
        if piece.text:
            events.append({"type": "TOOL_CALL_ARGS", "toolCallId": piece.call_id, "delta": piece.text})
        return events

    def _called(self, called: Called) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        if called.call_id not in self._started:
            piece = ArgumentsPiece(
                called.call_id, called.name, documents.write(called.arguments), called.message_id
            )
            events = self._arguments(piece)
        self._started.discard(called.call_id)
        return [*events, {"type": "TOOL_CALL_END", "toolCallId": called.call_id}]

    def _snapshots(self, before: int | None) -> list[dict[str, Any]]:
        state = self._store.load_state(self._session_id).custom_state
        shown = {name: value for name, value in state.items() if name not in self._hidden}
        sent = pending_messages(self._store, self._session_id)
        found = exchanges.page(self._store, self._session_id, limit=_SNAPSHOT).items
        first = found[0][0] if found else 0
        turns = exchanges.turns(self._store, self._session_id, first)
        messages = snapshot([one for one in found if before is None or one[0] < before], turns)
        taken = {message["id"] for message in messages}
        messages += snapshot(((0, message) for message in sent if message["id"] not in taken), {})
        return [
            {"type": "STATE_SNAPSHOT", "snapshot": shown},
            {"type": "MESSAGES_SNAPSHOT", "messages": messages},
        ]


def snapshot(
    messages: Iterable[tuple[int, Mapping[str, Any]]], turns: Mapping[int, tuple[int, str | None]]
) -> list[dict[str, Any]]:
    """Messages of a transcript, each with its position, as AG-UI has them.

    Clients keep what they have by its id, so each has the id that it was streamed with.
    """
    shown: list[dict[str, Any]] = []
    said_in: Counter[str | None] = Counter()
    for position, message in messages:
        role, name = message.get("role"), message_id(message, position)
        if role in ("user", "system"):
            shown.append({"id": name, "role": role, "content": text_of(message)})
        elif role == "assistant":
            if position in turns:
                seq, turn_id = turns[position]
                said_in[turn_id] += 1
                name = said_id(turn_id, said_in[turn_id], seq)
            said: dict[str, Any] = {"id": name, "role": "assistant", "content": text_of(message)}
            if calls := [_tool_call(call) for call in calls_in(message)]:
                said["toolCalls"] = calls
            shown.append(said)
        elif role == "tool" and isinstance(message.get("tool_call_id"), str):
            content = _text(message.get("content"))
            call_id = message["tool_call_id"]
            result = {"id": _result_id(call_id), "role": "tool", "toolCallId": call_id, "content": content}
            shown.append({**result, "error": content} if message.get("is_error") is True else result)
    return shown


def resumed(waiting: Iterable[WaitingCall], entries: Iterable[Mapping[str, Any]]) -> list[CallAnswer]:
    """The answers of a client to all that is open; anything else is `Refused`."""
    open_calls = {call.call_id: call for call in waiting}
    given = {entry.get("interruptId"): entry for entry in entries}
    if not open_calls:
        raise Refused("Nothing is open.")
    if given.keys() != open_calls.keys():
        missing = ", ".join(sorted(open_calls.keys() - given.keys())) or "none"
        raise Refused(f"The input has to answer all that is open, and nothing else; not answered: {missing}.")
    return [_answer(call, given[call_id]) for call_id, call in open_calls.items()]


def _answer(call: WaitingCall, entry: Mapping[str, Any]) -> CallAnswer:
    payload = entry.get("payload")
    if entry.get("status") == "cancelled":
        given: dict[str, Any] = {"approved": False} if call.is_approval else {"error": "It was cancelled."}
    elif not call.is_approval:
        given = {"result": payload}
    else:
        decision = payload if isinstance(payload, dict) else {"approved": payload}
        given = {"approved": decision.get("approved")}
        if not isinstance(given["approved"], bool):
            raise Refused(f"The answer to {call.call_id!r} has to say whether it is approved.")
        if isinstance(decision.get("reason"), str):
            given["reason"] = decision["reason"]
        if "arguments" in decision:
            if given["approved"] is False or not isinstance(decision["arguments"], dict):
                raise Refused(f"Only an approval of {call.call_id!r} has arguments, and they are an object.")
            given["arguments"] = decision["arguments"]
    return CallAnswer(call_id=call.call_id, given=given)


def _interrupt(call: WaitingCall) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": call.call_id,
        "reason": "tool_approval" if call.is_approval else "client_tool",
        "toolCallId": call.call_id,
        "metadata": {"toolName": call.name, "arguments": call.arguments},
    }
    if call.is_approval:
        told["responseSchema"] = {
            "type": "object",
            "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
            "required": ["approved"],
        }
    return told


def _result_id(call_id: str) -> str:
    return f"{call_id}-result"


def _result(told: Answered) -> dict[str, Any]:
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": _result_id(told.call_id),
        "toolCallId": told.call_id,
        "content": _text(told.content),
        "role": "tool",
    }


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": documents.write(arguments_of(call))}
    return {"id": call["id"], "type": "function", "function": function}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else documents.write(content)


def _frames(*events: Mapping[str, Any]) -> bytes:
    return "".join(f"data: {documents.write(event)}\n\n" for event in events).encode()
