"""Answers to waiting calls that come with a message of a page: checked all, then submitted all."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from helix_sessions.api import tool_answers
from helix_sessions.store import SessionStore
from helix_sessions.store.transcript.exchanges import Exchange

_ANSWERED = ("approval-responded", "output-available", "output-error")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswer:
    """What is submitted for one call."""

    call_id: str
    given: dict[str, Any]
    """The arguments of `submit_tool_result`: `result`, `error` or `approved`, `reason` and `arguments`."""


def submit(store: SessionStore, user: Any, session_id: str, answers: Iterable[CallAnswer]) -> int:
    """Answer calls that wait; how many calls of their sessions wait still. Those that were answered before
    keep their first answer."""
    listed = list(answers)
    for answer in listed:
        tool_answers.check_approver(store, user, session_id, answer.call_id)
    remaining: dict[str, int] = {}
    for answer in listed:
        done = tool_answers.submit(store, user, session_id, answer.call_id, **answer.given)
        remaining[done.owner_session_id] = done.remaining
    return sum(remaining.values())


def of_parts(
    parts: Iterable[dict[str, Any]], waiting: set[str], edited: Mapping[str, Any]
) -> Iterator[CallAnswer]:
    """The answers among the parts of an AI SDK message, to calls that wait. `edited`: what is to be executed
    instead of what was asked for, by call."""
    for part in parts:
        call_id, state = part.get("toolCallId"), part.get("state")
        if call_id not in waiting:
            continue
        if state == "approval-responded":
            approval = part.get("approval")
            decision = approval if isinstance(approval, dict) else {}
            given: dict[str, Any] = {"approved": decision.get("approved")}
            if decision.get("reason"):
                given["reason"] = decision["reason"]
            if call_id in edited:
                given["arguments"] = edited[call_id]
            yield CallAnswer(call_id=call_id, given=given)
        elif state == "output-available":
            yield CallAnswer(call_id=call_id, given={"result": part.get("output")})
        elif state == "output-error":
            yield CallAnswer(call_id=call_id, given={"error": part.get("errorText") or "It failed."})


def decided_at(
    store: SessionStore, session_id: str, parts: Iterable[dict[str, Any]], exchange: Exchange | None
) -> int | None:
    """The event that first answered one of these calls, in the answer to a message."""
    calls = {part.get("toolCallId") for part in parts if part.get("state") in _ANSWERED}
    if not calls:
        return None
    start = None if exchange is None else exchange.answered_from
    told = store.get_events(session_id, start, types=["tool_result_submitted"])
    return next((event.seq for event in told if event.data.get("tool_call_id") in calls), None)
