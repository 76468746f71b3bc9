"""Tool calls whose result is the outcome of a sub-session: they wait in the parent's row.

A wait is `ChildWait` as JSON; once settled it has the child's `status`, `output`, `error` and
`failure_reason` as well. `edited_arguments` are those that a call was approved with in the place of its own.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput
from helix_sessions.messages.tool_ledger import CHILD_FAILED, tool_message
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.types import TERMINAL_STATUSES, ChildWait

Waits: TypeAlias = dict[str, Any]


def check(values: Any) -> Waits:
    """The children a caller wants to wait for, by parent tool call id."""
    waits: Waits = {}
    for wait in inputs.values_of(ChildWait, values, "A child wait"):
        call_id = inputs.identifier(
            wait.parent_tool_call_id, "parent_tool_call_id", limit=inputs.MAX_TOOL_CALL_ID
        )
        if call_id in waits:
            raise InvalidInput(f"The tool call {call_id!r} waits for two children.")
        waits[call_id] = {
            "parent_tool_call_id": call_id,
            "sub_session_id": inputs.identifier(wait.sub_session_id, "The sub-session id"),
            "agent_type": inputs.identifier(wait.agent_type, "agent_type"),
        }
    return waits


def columns(waits: Mapping[str, Any] | None) -> dict[str, Any]:
    """The columns of the session's row for its awaited children. The last is derived from the first."""
    return {
        "suspended_awaiting_children": inputs.optional_mapping(waits, "suspended_awaiting_children"),
        "awaiting_children": bool(waiting(waits or {})),
    }


def read(text: str | None) -> Waits:
    """The waits of a session's row by parent tool call id."""
    return {} if text is None else documents.load(text)


def waiting(waits: Mapping[str, Any]) -> list[str]:
    """The sub-sessions that have not ended."""
    return [
        wait["sub_session_id"] if isinstance(wait, Mapping) and "sub_session_id" in wait else call_id
        for call_id, wait in waits.items()
        if not is_settled(wait)
    ]


def is_settled(wait: Any) -> bool:
    return isinstance(wait, Mapping) and wait.get("status") in TERMINAL_STATUSES


def result(call_id: str, wait: Mapping[str, Any], tool_name: str | None) -> dict[str, Any]:
    """The tool message of a settled wait."""
    call = {"id": call_id, "name": wait.get("agent_type", "") if tool_name is None else tool_name}
    if "edited_arguments" in wait:
        call |= {"arguments": wait["edited_arguments"], "edited": True}
    if wait["status"] == "completed":
        return tool_message(call, wait.get("output"))
    error = wait.get("error") or wait.get("failure_reason") or CHILD_FAILED
    return tool_message(call, error, is_error=True)


def settle(work: UnitOfWork, outcome: Mapping[str, Any]) -> list[str]:
    """Settle the waits of the locked session for this child; returns the parent tool call ids."""
    waits = read(work.session.suspended_awaiting_children)
    ended = [
        call_id
        for call_id, wait in waits.items()
        if isinstance(wait, Mapping)
        and wait.get("sub_session_id") == outcome["sub_session_id"]
        and not is_settled(wait)
    ]
    for call_id in ended:
        waits[call_id] = {**waits[call_id], **outcome}
    if ended:
        work.change(**columns(waits))
    return ended
