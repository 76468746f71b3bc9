"""Tool calls that wait in the row for a person or a client: their entries, answers, deadlines and results.

An entry is `PendingCall` as JSON with `arguments_digest`, `run_id`, `requested_at`, `response` and
`submitted_at`, and with `by` once it is answered. A caller that saves states may put anything here, so an
entry of another shape waits until it has a `submitted_at`.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, TypeAlias

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput
from helix_sessions.messages.tool_ledger import DENIED, EXPIRED, tool_message
from helix_sessions.store.engine import inputs
from helix_sessions.types import APPROVERS, CALL_KINDS, PendingCall
from helix_sessions.values import response_schemas

Entry: TypeAlias = dict[str, Any]
Entries: TypeAlias = dict[str, Any]

DEADLINE: dict[str, Any] = {"kind": "deadline", "id": None}


def columns(calls: Mapping[str, Any] | None) -> dict[str, Any]:
    """The columns of the session's row for its pending calls. The last two are derived from the first."""
    if calls is None:
        return {"pending_client_tool_calls": None, "awaiting_client": False, "next_deadline": None}
    return {
        "pending_client_tool_calls": inputs.optional_mapping(calls, "pending_client_tool_calls"),
        "awaiting_client": any(True for _ in unanswered(calls)),
        "next_deadline": min(
            (at for _, entry in unanswered(calls) if (at := _deadline(entry)) is not None), default=None
        ),
    }


def read(text: str | None) -> Entries:
    """The entries of a session's row by tool call id."""
    return {} if text is None else documents.load(text)


def unanswered(calls: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """The entries without an answer."""
    for call_id, entry in (calls or {}).items():
        if not (isinstance(entry, Mapping) and entry.get("submitted_at")):
            yield call_id, entry


def check(values: Any) -> Entries:
    """The calls a caller wants to wait for, as entries that lack what only the write can say."""
    entries: Entries = {}
    for call in inputs.values_of(PendingCall, values, "A pending call"):
        call_id = tool_call_id(call.tool_call_id)
        if call_id in entries:
            raise InvalidInput(f"The tool call {call_id!r} is pending twice.")
        documents.dump(call.arguments)
        if inputs.string_document(call.tool_name, "tool_name") is None:
            raise InvalidInput("A pending call has a tool_name.")
        deadline = inputs.optional_moment(_parsed(call.deadline), "The deadline of a call")
        entries[call_id] = {
            "tool_call_id": call_id,
            "tool_name": call.tool_name,
            "arguments": call.arguments,
            "kind": inputs.choice(call.kind, CALL_KINDS, "The kind of a pending call"),
            "approval_id": inputs.optional_identifier(
                call.approval_id, "approval_id", limit=inputs.MAX_TOOL_CALL_ID
            ),
            "deadline": None if deadline is None else deadline.isoformat(),
            "response_schema": _schema(call.response_schema),
        }
        entries[call_id]["arguments_digest"] = arguments_digest(entries[call_id])
        if inputs.choice(call.approver, APPROVERS, "The approver of a pending call") != "driver":
            entries[call_id]["approver"] = call.approver
    return entries


def tool_call_id(value: Any) -> str:
    return inputs.identifier(value, "tool_call_id", limit=inputs.MAX_TOOL_CALL_ID)


def arguments_digest(entry: Entry) -> str:
    """What tells the question of an entry from others: the sha256 of its tool's name and its arguments."""
    asked = documents.canonical([entry.get("tool_name"), entry.get("arguments")])
    return sha256(asked.encode()).hexdigest()


def request(entries: Entries, run_id: str, now: datetime) -> Entries:
    """Checked entries as they are stored."""
    asked = {"run_id": run_id, "requested_at": now.isoformat(), "response": None, "submitted_at": None}
    return {call_id: {**entry, **asked} for call_id, entry in entries.items()}


def answer(entry: Entry, response: dict[str, Any], by: Mapping[str, Any], now: datetime) -> Entry:
    """The entry with its answer, and who gave it."""
    return {**entry, "response": response, "submitted_at": now.isoformat(), "by": dict(by)}


def expire(calls: Entries, now: datetime) -> list[str]:
    """Answer calls past their deadline with an error; returns their ids."""
    late = [call_id for call_id, entry in unanswered(calls) if (at := _deadline(entry)) and at <= now]
    for call_id in late:
        calls[call_id] = answer(calls[call_id], {"error": EXPIRED, "expired": True}, DEADLINE, now)
    return late


def is_expired(entry: Entry) -> bool:
    """Whether the entry was answered by its deadline."""
    return bool(_response(entry).get("expired"))


def is_approved(entry: Entry) -> bool:
    """Whether the answer is a decision to execute the call."""
    return _response(entry).get("approved") is True


def approved_call(entry: Entry) -> Entry:
    """The entry of an approved call with the arguments to execute, which the approver may have replaced."""
    return {**entry, "arguments": _response(entry).get("arguments", entry.get("arguments"))}


def is_edited(entry: Entry) -> bool:
    """Whether the approver has replaced the arguments."""
    return "arguments" in _response(entry)


def result(call_id: str, entry: Entry) -> dict[str, Any]:
    """The tool message an answered call becomes."""
    call = {"id": call_id, "name": entry.get("tool_name", "")}
    response = _response(entry)
    if response.get("approved") is False:
        reason = response.get("reason") or response.get("error") or DENIED
        return tool_message(call, reason, is_error=True)
    if "error" in response:
        return tool_message(call, response["error"], is_error=True)
    return tool_message(call, response.get("result", entry.get("response")))


def requested_at(entry: Any) -> Any:
    """The time the call was requested at."""
    return entry.get("requested_at") if isinstance(entry, Mapping) else None


def _response(entry: Any) -> Mapping[str, Any]:
    response = entry.get("response") if isinstance(entry, Mapping) else None
    return response if isinstance(response, Mapping) else {}


def _schema(schema: Any) -> dict[str, Any] | None:
    return None if schema is None else response_schemas.check(schema)


def _deadline(entry: Any) -> datetime | None:
    return moment(entry.get("deadline")) if isinstance(entry, Mapping) else None


def moment(value: Any) -> datetime | None:
    """A time of an entry in UTC; `None` if it is not a timestamp."""
    try:
        at = _parsed(value)
        if not isinstance(at, datetime):
            return None
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, InvalidInput):
        return None


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise InvalidInput("A deadline must be an aware datetime.") from None


def ids(pairs: Iterable[tuple[str, Any]]) -> list[str]:
    return [call_id for call_id, _ in pairs]
