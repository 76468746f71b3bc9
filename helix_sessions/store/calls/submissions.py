"""Answers to tool calls that wait: submitted by whoever has them, or given by the deadline."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.utils import timezone

from helix_sessions.content import documents
from helix_sessions.exceptions import (
    InvalidDocument,
    InvalidInput,
    SessionBusy,
    SessionNotFound,
    SubmissionMismatch,
    UnknownToolCall,
)
from helix_sessions.models import Session
from helix_sessions.store.calls import call_index
from helix_sessions.store.engine import inputs, session_rows, transactions
from helix_sessions.store.engine.session_rows import LIGHT_COLUMNS
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import pending_calls
from helix_sessions.store.state.pending_calls import Entry
from helix_sessions.types import JSON, UNSET, Submission, Unset

MAX_RESULT_BYTES = 1024 * 1024
MAX_TEXT_BYTES = 8 * 1024

_COLUMNS = (*LIGHT_COLUMNS, "pending_client_tool_calls")
_BATCH = 500


def submit_tool_result(
    store: Store,
    session_id: str,
    tool_call_id: str,
    *,
    result: JSON | Unset = UNSET,
    error: str | None = None,
    approved: bool | None = None,
    approval_id: str | None = None,
    reason: str | None = None,
    expected_version: int | None = None,
) -> Submission:
    """Answer a pending call of the session, or of any session of the tree whose root it is.

    Give exactly one of `result`, `error` and `approved`. The first answer is `accepted`, and so is one
    that comes after the deadline but before the resume; any other is told what became of the call.
    Nobody is woken: who wants the session to go on resumes it. `expected_version` is the owner's.
    """
    key, call_id = session_key(session_id), short_id(tool_call_id, "tool_call_id")
    answer = checked_answer(result, error, approved, reason)
    approval = None if approval_id is None else short_id(approval_id, "approval_id")
    version = inputs.expected_version(expected_version)
    root_id, owner_id = find(store, key, call_id)
    try:
        return submit(store, root_id, owner_id, call_id, answer, approval_id=approval, version=version)
    except SessionNotFound:
        if owner_id == key:
            raise
        raise UnknownToolCall(f"The session of tool call {call_id!r} is gone.") from None


def submit(
    store: Store,
    root_id: str,
    owner_id: str,
    call_id: str,
    answer: dict[str, Any],
    *,
    approval_id: str | None = None,
    requested_at: str | Unset | None = UNSET,
    version: int | None = None,
) -> Submission:
    """Answer a call of a session, which is in this tree. One asked for at another time is another."""
    with transactions.write(store.using, owner_id, version, columns=_COLUMNS) as work:
        if root_id not in (owner_id, work.session.root_session_id):
            raise UnknownToolCall(f"No tool call {call_id!r} is pending.")
        calls = pending_calls.read(work.session.pending_client_tool_calls)
        entry = calls.get(call_id)
        if entry is None:
            outcome = _after_the_resume(store, work, root_id, call_id, answer)
        else:
            if requested_at not in (UNSET, pending_calls.requested_at(entry)):
                raise UnknownToolCall(f"Another tool call {call_id!r} is pending.")
            answer = _matching(entry, answer, approval_id)
            outcome = "already_completed"
            if not entry.get("submitted_at") or pending_calls.is_expired(entry):
                outcome = "accepted"
                calls[call_id] = pending_calls.answer(entry, answer, work.now)
                work.change(**pending_calls.columns(calls))
                told = {"tool_call_id": call_id, "answer": _kind_of(answer)}
                if requested_at is not UNSET:
                    told["by"] = "link"
                work.event("tool_result_submitted", told)
    remaining = len(list(pending_calls.unanswered(calls)))
    return Submission(outcome=outcome, owner_session_id=owner_id, remaining=remaining)


def settle_expired_calls(store: Store, now: datetime | None = None) -> int:
    """Answer every pending call past its deadline with an error, in all sessions; how many.

    A session that is busy is left for the next time.
    """
    moment = timezone.now() if now is None else inputs.moment(now, "now")
    settled = 0
    for key in _past_deadline(store.using, moment):
        try:
            with store._write(key, columns=_COLUMNS) as work:
                calls = pending_calls.read(work.session.pending_client_tool_calls)
                expired = pending_calls.expire(calls, moment)
                if expired:
                    work.change(**pending_calls.columns(calls))
                for call_id in expired:
                    work.event("tool_result_expired", {"tool_call_id": call_id})
        except (SessionNotFound, SessionBusy):
            continue
        settled += len(expired)
    return settled


def find(store: Store, session_id: str, call_id: str) -> tuple[str, str]:
    """The root of the session's tree, and the session in it whose call this is.

    A session answers for itself, a root for its whole tree. The root's map is read as well, because a
    caller that saves states may have written it.
    """
    row = store._read(session_id, ("session_id", "root_session_id", "pending_client_tool_calls"))
    root_id = row.root_session_id or session_id
    if call_id in pending_calls.read(row.pending_client_tool_calls):
        return root_id, session_id
    owner = None if root_id == session_id else session_id
    known = call_index.find(store.using, root_id, call_id, owner)
    if known is not None:
        return root_id, known.owner_session_id
    shown = _maps(store, root_id)[0].get(call_id)
    if isinstance(shown, str) and (owner is None or shown == owner):
        return root_id, shown
    return root_id, session_id


def _after_the_resume(
    store: Store, work: UnitOfWork, root_id: str, call_id: str, response: dict[str, Any]
) -> str:
    """What to say of a call that is not pending any more."""
    owner_id = work.session.session_id
    known = call_index.find(store.using, root_id, call_id, owner_id)
    if known is None and root_id != owner_id:  # a session whose root is not stored is its own
        known = call_index.find(store.using, owner_id, call_id, owner_id)
    if known is None or known.completed_at is None:
        ownership, completed = _maps(store, root_id)
        if call_id in completed and ownership.get(call_id, owner_id) == owner_id:
            return "already_completed"
        raise UnknownToolCall(f"No tool call {call_id!r} is pending.")
    if not known.expired:
        return "already_completed"
    if known.late_at is None:
        # Only told: a stranger's late answer must not make a running agent's version stale.
        work.versioned = False
        call_index.note_late(work, known)
        work.event("tool_result_late", {"tool_call_id": call_id, "response": response})
    return "late"


def _maps(store: Store, root_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    names = ("client_tool_call_ownership", "completed_client_tool_calls")
    try:
        row = session_rows.read_row(store._connection, root_id, names)
    except SessionNotFound:
        return {}, {}
    ownership, completed = (getattr(row, name) for name in names)
    return documents.load(ownership or "{}"), documents.load(completed or "{}")


def _past_deadline(using: str, now: datetime) -> Iterator[str]:
    rows = Session.objects.using(using).past_deadline(now).order_by("next_deadline", "session_id")
    last: tuple[Any, str] | None = None
    while True:
        after = rows
        if last is not None:
            after = rows.filter(next_deadline__gte=last[0]).exclude(
                next_deadline=last[0], session_id__lte=last[1]
            )
        batch = list(after.values_list("next_deadline", "session_id")[:_BATCH])
        for at, key in batch:
            yield key
            last = (at, key)
        if len(batch) < _BATCH:
            return


def short_id(value: Any, what: str) -> str:
    """An id a stranger sent."""
    if isinstance(value, str) and len(value) > inputs.MAX_TOOL_CALL_ID:
        raise InvalidDocument(f"{what} has {len(value)} characters; {inputs.MAX_TOOL_CALL_ID} are allowed.")
    return pending_calls.tool_call_id(value)


def checked_answer(
    result: JSON | Unset, error: str | None, approved: bool | None, reason: str | None
) -> dict[str, Any]:
    """The answer as it is stored, checked against its limits."""
    if (result is not UNSET) + (error is not None) + (approved is not None) != 1:
        raise SubmissionMismatch("Give exactly one of result, error and approved.")
    if approved is not None and not isinstance(approved, bool):
        raise InvalidInput("approved must be true or false.")
    response: dict[str, Any] = {}
    if result is not UNSET:
        _limit(documents.dump(result), MAX_RESULT_BYTES, "The result")
        response["result"] = result
    for name, text in (("error", error), ("reason", reason)):
        if text is not None:
            inputs.string_document(text, name)
            _limit(text, MAX_TEXT_BYTES, f"The text of {name}")
            response[name] = text
    if approved is not None:
        response["approved"] = approved
    return response


def _limit(text: str, most: int, what: str) -> None:
    size = len(text.encode())
    if size > most:
        raise InvalidDocument(f"{what} has {size:,} bytes; {most:,} are allowed.")


def _matching(entry: Entry, response: dict[str, Any], approval_id: str | None) -> dict[str, Any]:
    """The answer, if the call can take it. An error for an approval is a denial."""
    if not isinstance(entry, dict):
        raise SubmissionMismatch("The pending call was saved in a form that takes no answer.")
    is_approval = entry.get("kind") == "approval"
    if is_approval and "result" in response:
        raise SubmissionMismatch("The call waits for a decision, not for a result.")
    if not is_approval and "approved" in response:
        raise SubmissionMismatch("The call waits for a result, not for a decision.")
    if approval_id is not None and approval_id != entry.get("approval_id"):
        raise SubmissionMismatch("The answer is for another approval.")
    if is_approval and "error" in response:
        return {"approved": False, **response}
    return response


def _kind_of(response: dict[str, Any]) -> str:
    if "approved" in response:
        return "approved" if response["approved"] else "denied"
    return "error" if "error" in response else "result"
