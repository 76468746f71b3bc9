"""The UI message stream of Vercel's AI SDK (`useChat`), versions 6 and 7.

A message of the page is one message of a user, or all that answers it: the steps of every run until the next
message of a user. Its chunks are what both versions understand, so none is of the newer alone.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from helix_sessions.api.frontends.following import Standing, WaitingCall, pending_messages, waiting_calls
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
    answer_id,
    arguments_of,
    message_id,
    reasoning_of,
    text_of,
)
from helix_sessions.messages.tool_ledger import calls_in
from helix_sessions.store import SessionStore
from helix_sessions.store.transcript import exchanges
from helix_sessions.types import Page

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}

_FINISH_REASONS = {"completed": "stop", "waiting": "tool-calls", "failed": "error"}


class UIMessageStream:
    """An answer as chunks."""

    headers = HEADERS

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._open: tuple[str, str] | None = None
        """The part that is being said: its kind and id."""
        self._parts = 0
        self._started: set[str] = set()
        """Calls whose arguments are being said."""
        self._step_is_open = False
        self._ends_with_call = False
        """The last step has a call."""

    def begin(self) -> bytes:
        return _frames({"type": "start", "messageId": self._message_id})

    def look(self, now: Standing) -> None:
        """Nothing beyond it is told."""

    def tell(self, told: Told) -> bytes:
        return _frames(*self._chunks(told))

    def waits(self, calls: Iterable[WaitingCall]) -> bytes:
        chunks = self._close_part()
        for call in calls:
            if not call.is_own:
                chunks.append(_input_available(call.call_id, call.name, call.arguments))
            if call.is_approval:
                request = {"approvalId": call.call_id, "toolCallId": call.call_id}
                chunks.append({"type": "tool-approval-request", **request})
        return _frames(*chunks) + self.end("waiting", "")

    def end(self, status: str, error: str) -> bytes:
        chunks = self._close_part()
        if self._step_is_open:
            chunks.append({"type": "finish-step"})
        if self._ends_with_call and status != "waiting":
            # Pages send by themselves when all calls of the last step are answered: here is none to answer.
            chunks += [{"type": "start-step"}, {"type": "finish-step"}]
        if status not in _FINISH_REASONS:
            chunks.append(_status(status))
        if error:
            chunks.append({"type": "error", "errorText": error})
        else:
            chunks.append({"type": "finish", "finishReason": _FINISH_REASONS.get(status, "other")})
        return _frames(*chunks) + b"data: [DONE]\n\n"

    def _chunks(self, told: Told) -> list[dict[str, Any]]:
        match told:
            case StepBegan():
                self._step_is_open, self._ends_with_call = True, False
                return [{"type": "start-step"}]
            case StepEnded():
                self._step_is_open = False
                return [*self._close_part(), {"type": "finish-step"}]
            case Said():
                return self._said(told)
            case ArgumentsPiece():
                return self._arguments(told)
            case MessageEnded():
                return self._close_part()
            case Called():
                return [_input_available(told.call_id, told.name, told.arguments)]
            case Answered():
                self._ends_with_call = True
                return [_output(told)]
            case Withdrawn():
                retry = {"attempt": told.attempt, "error": told.error, "retryAt": told.retry_at}
                return [*self._close_part(), _status("retrying" if told.retry_at else "failed", **retry)]
            case Subagent():
                return [_subagent(told)]
            case Progress():
                return [{"type": "data-progress", "data": told.data, "transient": True}]
        return []

    def _said(self, said: Said) -> list[dict[str, Any]]:
        kind = "reasoning" if said.is_reasoning else "text"
        chunks = []
        if self._open is None or self._open[0] != kind:
            chunks = self._close_part()
            self._parts += 1
            self._open = (kind, f"{said.message_id}-{self._parts}")
            chunks.append({"type": f"{kind}-start", "id": self._open[1]})
        return [*chunks, {"type": f"{kind}-delta", "id": self._open[1], "delta": said.text}]

    def _arguments(self, piece: ArgumentsPiece) -> list[dict[str, Any]]:
        chunks = self._close_part()
        if piece.call_id not in self._started:
            self._started.add(piece.call_id)
            named = {"toolCallId": piece.call_id, "toolName": piece.name}
            chunks.append({"type": "tool-input-start", **named})
        if piece.text:
            delta = {"toolCallId": piece.call_id, "inputTextDelta": piece.text}
            chunks.append({"type": "tool-input-delta", **delta})
        return chunks

    def _close_part(self) -> list[dict[str, Any]]:
        if self._open is None:
            return []
        (kind, part_id), self._open = self._open, None
        return [{"type": f"{kind}-end", "id": part_id}]


def _frames(*chunks: Mapping[str, Any]) -> bytes:
    return "".join(f"data: {documents.write(chunk)}\n\n" for chunk in chunks).encode()


def _input_available(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "tool-input-available", "toolCallId": call_id, "toolName": name, "input": arguments}


def _output(answered: Answered) -> dict[str, Any]:
    if answered.is_denied:
        return {"type": "tool-output-denied", "toolCallId": answered.call_id}
    if answered.is_error:
        text = _text(answered.content)
        return {"type": "tool-output-error", "toolCallId": answered.call_id, "errorText": text}
    return {"type": "tool-output-available", "toolCallId": answered.call_id, "output": answered.content}


def _status(state: str, **more: Any) -> dict[str, Any]:
    return {"type": "data-status", "data": {"state": state, **more}, "transient": True}


def _subagent(told: Subagent) -> dict[str, Any]:
    data = {
        "sessionId": told.session_id,
        "agentType": told.agent_type,
        "toolCallId": told.call_id,
        "status": told.status,
    }
    return {"type": "data-subagent", "id": told.session_id, "data": data}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else documents.write(content)


def history(store: SessionStore, session_id: str, limit: int, cursor: str | None) -> Page[dict[str, Any]]:
    """A page of a session's transcript as a page of a browser shows it; with the newest, what waits: calls
    for their answers, and messages to be taken."""
    sent = () if cursor is not None else pending_messages(store, session_id)
    found = exchanges.page(store, session_id, limit=limit, cursor=cursor)
    waiting = () if cursor is not None else waiting_calls(store, store.load_state(session_id))
    shown = ui_messages(found.items, waiting)
    taken = {message["id"] for message in shown}
    for message in sent:
        if message["id"] not in taken:
            shown.append({"id": message["id"], "role": "user", "parts": _user_parts(message)})
    return Page(items=shown, next_cursor=found.next_cursor)


def prompt_of(parts: Iterable[Mapping[str, Any]]) -> Any:
    """What a message of a page says: a text, or with files a message with blocks."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        if part["type"] == "text":
            blocks.append({"type": "text", "text": part.get("text", "")})
        elif part["type"] == "file":
            names = {"mediaType": "media_type", "url": "url", "filename": "filename"}
            blocks.append({"type": "file", **{names[key]: part[key] for key in names if key in part}})
    if all(block["type"] == "text" for block in blocks):
        return "".join(block["text"] for block in blocks)
    return {"content": blocks}


def ui_messages(
    messages: Iterable[tuple[int, Mapping[str, Any]]], waiting: Iterable[WaitingCall]
) -> list[dict[str, Any]]:
    """Messages of a transcript, each with its position, as a page shows them: its initial messages."""
    shown: list[dict[str, Any]] = []
    tools: dict[str, dict[str, Any]] = {}
    asked = "message-0"
    for position, message in messages:
        role = message.get("role")
        if role == "user":
            asked = message_id(message, position)
            shown.append({"id": asked, "role": "user", "parts": _user_parts(message)})
        elif role == "assistant":
            _answer(shown, asked)["parts"] += _assistant_parts(message, tools)
        elif role == "tool" and message.get("tool_call_id") in tools:
            tools[message["tool_call_id"]].update(_result(message))
    for call in waiting:
        if not call.is_own:
            part = _tool_part(call.call_id, call.name, call.arguments)
            _answer(shown, asked)["parts"].append(part)
            tools[call.call_id] = part
        if call.is_approval and call.call_id in tools:
            tools[call.call_id].update(state="approval-requested", approval={"id": call.call_id})
    return shown


def _answer(shown: list[dict[str, Any]], asked: str) -> dict[str, Any]:
    if not shown or shown[-1]["role"] != "assistant":
        shown.append({"id": answer_id(asked), "role": "assistant", "parts": []})
    return shown[-1]


def _user_parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if not isinstance(content, list):
        return [{"type": "text", "text": text_of(message)}]
    parts: list[dict[str, Any]] = []
    for block in content:
        if isinstance(block, dict) and block.get("type") == "file":
            names = {"media_type": "mediaType", "url": "url", "filename": "filename"}
            parts.append({"type": "file", **{names[key]: block[key] for key in names if key in block}})
        elif text := text_of({"content": [block]}):
            parts.append({"type": "text", "text": text})
    return parts


def _assistant_parts(message: Mapping[str, Any], tools: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "step-start"}]
    if reasoning := reasoning_of(message):
        parts.append({"type": "reasoning", "text": reasoning, "state": "done"})
    if text := text_of(message):
        parts.append({"type": "text", "text": text, "state": "done"})
    for call in calls_in(message):
        tools[call["id"]] = _tool_part(call["id"], call["name"], arguments_of(call))
        parts.append(tools[call["id"]])
    return parts


def _tool_part(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"type": f"tool-{name}", "toolCallId": call_id, "state": "input-available", "input": arguments}


def _result(message: Mapping[str, Any]) -> dict[str, Any]:
    if message.get("is_error") is True:
        return {"state": "output-error", "errorText": _text(message.get("content"))}
    return {"state": "output-available", "output": message.get("content")}
