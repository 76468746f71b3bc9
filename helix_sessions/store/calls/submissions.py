"""Answers to pending tool calls: submitted by a caller, or by the deadline."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.utils import timezone

from helix_sessions.content import documents
from helix_sessions.exceptions import (
    AnswerForbidden,
    InvalidDocument,
    InvalidInput,
    SessionBusy,
    SessionNotFound,
    SubmissionMismatch,
    UnknownToolCall,
)
from helix_sessions.messages.tool_ledger import EXPIRED
from helix_sessions.models import Session
from helix_sessions.store.calls import call_index, tool_rules
from helix_sessions.store.engine import inputs, session_rows, transactions
from helix_sessions.store.engine.session_columns import LIGHT_COLUMNS
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import pending_calls, runnable
from helix_sessions.store.state.pending_calls import DEADLINE, Entry
from helix_sessions.types import JSON, REMEMBERED, UNSET, Submission, SubmissionOutcome, Unset
from helix_sessions.values import response_schemas

MAX_RESULT_BYTES = 1024 * 1024
MAX_TEXT_BYTES = 8 * 1024

ANSWERED_BY = ("user", "operator", "link", "rule", "deadline", "code")
CODE: dict[str, Any] = {"kind": "code", "id": None}
LINK: dict[str, Any] = {"kind": "link", "id": None}

_COLUMNS = (*LIGHT_COLUMNS, "pending_client_tool_calls")
_BATCH = 500


class Found(NamedTuple):
    """Where a call waits."""

    root_id: str
    owner_id: str
    """The session whose call it is."""
    entry: Entry | None
    """Its entry, if that was read on the way."""


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
    arguments: Mapping[str, JSON] | None = None,
    arguments_digest: str | None = None,
    remember: str | None = None,
    by: Mapping[str, JSON] | None = None,
    as_participant: bool = False,
    expected_version: int | None = None,
) -> Submission:
    """Answer a pending call of the session, or of any session of the tree whose root it is.

    Give exactly one of `result`, `error` and `approved`. The first answer is `accepted`, and so is one
    that comes after the deadline but before the resume; any other is told what became of the call.
    With the last answer the session is runnable, and runners are told. `by` says who answers, as `kind`
    and `id`; without it, code. `expected_version` is the owner's.

    With `approved=True`, `arguments` are executed in the place of the model's, and `remember` makes the
    rule that allows the tool from then on, in the `session` or in all of its `owner`. `arguments_digest`
    is that of the entry the answer is about; another one is `SubmissionMismatch`, as is a result that
    does not fit the `response_schema` of the call. `as_participant`: decide only where the tool leaves
    that to participants, and remember for the session only; anything else is `AnswerForbidden`.
    """
    key, call_id = session_key(session_id), short_id(tool_call_id, "tool_call_id")
    answer = checked_answer(result, error, approved, reason, arguments)
    approval = None if approval_id is None else short_id(approval_id, "approval_id")
    kept = checked_remember(remember, approved)
    who = _who(by)
    participant = inputs.flag(as_participant, "as_participant")
    version = inputs.expected_version(expected_version)
    found = find(store, key, call_id)
    if participant and kept == "owner":
        raise AnswerForbidden("A participant may have an approval remembered for the session only.")
    try:
        return submit(
            store,
            found,
            call_id,
            answer,
            by=who,
            approval_id=approval,
            arguments_digest=arguments_digest,
            remember=kept,
            as_participant=participant,
            version=version,
        )
    except SessionNotFound as error:
        if found.owner_id == key:
            raise
        store._explain_absence(error)
        raise UnknownToolCall(f"The session of tool call {call_id!r} is gone.") from None


def submit(
    store: Store,
    found: Found,
    call_id: str,
    answer: dict[str, Any],
    *,
    by: dict[str, Any],
    approval_id: str | None = None,
    arguments_digest: str | None = None,
    remember: str | None = None,
    as_participant: bool = False,
    requested_at: str | Unset | None = UNSET,
    version: int | None = None,
) -> Submission:
    """Answer a call of a session, which is in this tree. One asked for at another time is another."""
    root_id, owner_id, _ = found
    schema = _fitted_schema(store, found, call_id, answer)  # takes a while, so nothing is locked yet
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
            if as_participant:
                _check_participant(entry, remember)
            answer = _matching(entry, answer, approval_id, arguments_digest, schema)
            outcome = "already_completed"
            if not entry.get("submitted_at") or pending_calls.is_expired(entry):
                outcome = "accepted"
                calls[call_id] = pending_calls.answer(entry, answer, by, work.now)
                work.change(**pending_calls.columns(calls))
                _tell(work, call_id, answer, by)
                if remember is not None:
                    tool_rules.remember(work, entry.get("tool_name"), remember, by)
                runnable.follow(work)
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
                    runnable.follow(work)
                for call_id in expired:
                    tell_expired(work, call_id)
        except (SessionNotFound, SessionBusy):
            continue
        settled += len(expired)
    return settled


def tell_expired(work: UnitOfWork, call_id: str) -> None:
    """Log that the deadline of a call of the locked session has answered it."""
    work.event("tool_result_expired", {"tool_call_id": call_id})
    _tell(work, call_id, {"error": EXPIRED}, DEADLINE)


def _tell(work: UnitOfWork, call_id: str, answer: dict[str, Any], by: dict[str, Any]) -> None:
    data: dict[str, Any] = {"tool_call_id": call_id, "answer": _kind_of(answer), "by": by}
    if "arguments" in answer:
        data |= {"edited": True, "arguments": answer["arguments"]}
    work.event("tool_result_submitted", text=documents.dump(data))


def _who(by: Mapping[str, JSON] | None) -> dict[str, Any]:
    """Who answers, checked."""
    if by is None:
        return CODE
    if not isinstance(by, Mapping) or not set(by) <= {"kind", "id"}:
        raise InvalidInput("by must be an object with a kind and an id.")
    kind = inputs.choice(by.get("kind"), ANSWERED_BY, "The kind of who answers")
    return {"kind": kind, "id": inputs.optional_identifier(by.get("id"), "The id of who answers")}


def find(store: Store, session_id: str, call_id: str) -> Found:
    """The root of the session's tree, and the session in it whose call this is.

    A session answers for itself, a root for its whole tree. The root's map is read as well, because a
    caller that saves states may have written it.
    """
    row = store._read(session_id, ("session_id", "root_session_id", "pending_client_tool_calls"))
    root_id = row.root_session_id or session_id
    entry = pending_calls.read(row.pending_client_tool_calls).get(call_id)
    if entry is not None:
        return Found(root_id, session_id, entry)
    owner = None if root_id == session_id else session_id
    known = call_index.find(store.using, root_id, call_id, owner)
    if known is not None:
        return Found(root_id, known.owner_session_id, None)
    shown = _maps(store, root_id)[0].get(call_id)
    if isinstance(shown, str) and (owner is None or shown == owner):
        return Found(root_id, shown, None)
    return Found(root_id, session_id, None)


def _fitted_schema(store: Store, found: Found, call_id: str, answer: dict[str, Any]) -> Any:
    """The schema of the call, which the result fits; `None` where there is none to fit."""
    if "result" not in answer:
        return None
    entry = found.entry
    if entry is None:
        try:
            row = session_rows.read_row(store._connection, found.owner_id, ("pending_client_tool_calls",))
        except SessionNotFound:
            return None
        entry = pending_calls.read(row.pending_client_tool_calls).get(call_id)
    schema = entry.get("response_schema") if isinstance(entry, dict) else None
    if schema is not None:
        value = documents.load(documents.write(answer["result"]))
        why = response_schemas.misfit(response_schemas.check(schema), value)
        if why is not None:
            raise SubmissionMismatch(f"The result does not fit the schema of the call: {why}")
    return schema


def _after_the_resume(
    store: Store, work: UnitOfWork, root_id: str, call_id: str, response: dict[str, Any]
) -> SubmissionOutcome:
    """What to say of a call that is not pending any more."""
    owner_id = work.session.session_id
    known = call_index.find(store.using, root_id, call_id, owner_id)
    if known is None and root_id != owner_id:  # a session whose root is not stored is its own
        known = call_index.find(store.using, owner_id, call_id, owner_id)
    if known is None:
        ownership, completed = _maps(store, root_id)
        if call_id in completed and ownership.get(call_id, owner_id) == owner_id:
            return "already_completed"
        raise UnknownToolCall(f"No tool call {call_id!r} is pending.")
    if not known.expired:  # consumed; or its session has ended, and waits for nothing
        return "already_completed"
    if known.late_at is None:
        # Only logged: a stranger's late answer must not make a running agent's version stale.
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


def checked_remember(remember: Any, approved: bool | None) -> str | None:
    """For what an approval is remembered."""
    if remember is None:
        return None
    scope = inputs.choice(remember, REMEMBERED, "remember")
    if approved is not True:
        raise SubmissionMismatch("Only an approval is remembered.")
    return scope


def checked_answer(
    result: JSON | Unset,
    error: str | None,
    approved: bool | None,
    reason: str | None,
    arguments: Mapping[str, JSON] | None = None,
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
    if arguments is not None:
        if approved is not True or not isinstance(arguments, Mapping):
            raise SubmissionMismatch("Arguments are an object, and come with an approval.")
        text = inputs.mapping(arguments, "arguments")
        _limit(text, MAX_RESULT_BYTES, "The arguments")
        response["arguments"] = documents.load(text)
    return response


def _limit(text: str, most: int, what: str) -> None:
    size = len(text.encode())
    if size > most:
        raise InvalidDocument(f"{what} has {size:,} bytes; {most:,} are allowed.")


def _check_participant(entry: Entry, remember: str | None) -> None:
    """A participant decides, and has a decision remembered, where the tool leaves it to them."""
    if not isinstance(entry, dict) or entry.get("approver") == "participant":
        return
    if remember is not None or entry.get("kind") == "approval":
        raise AnswerForbidden("This call waits for the approval of another user.")


def _matching(
    entry: Entry, response: dict[str, Any], approval_id: str | None, digest: str | None, schema: Any
) -> dict[str, Any]:
    """The answer, if the call can take it. An error for an approval is a denial, and arguments that are the
    call's own are no edit."""
    if not isinstance(entry, dict):
        raise SubmissionMismatch("The pending call was saved in a form that takes no answer.")
    is_approval = entry.get("kind") == "approval"
    if is_approval and "result" in response:
        raise SubmissionMismatch("The call waits for a decision, not for a result.")
    if not is_approval and "approved" in response:
        raise SubmissionMismatch("The call waits for a result, not for a decision.")
    if approval_id is not None and approval_id != entry.get("approval_id"):
        raise SubmissionMismatch("The answer is for another approval.")
    if digest is not None and digest != pending_calls.arguments_digest(entry):
        raise SubmissionMismatch("The answer is for other arguments than the call has now.")
    if "result" in response and schema != entry.get("response_schema"):
        raise SubmissionMismatch("The schema of the call has changed meanwhile.")
    if is_approval and "error" in response:
        return {"approved": False, **response}
    if "arguments" in response and _is_same(response["arguments"], entry.get("arguments")):
        return {name: value for name, value in response.items() if name != "arguments"}
    return response


def _is_same(one: Any, other: Any) -> bool:
    return documents.canonical(one) == documents.canonical(other)


def _kind_of(response: dict[str, Any]) -> str:
    if "approved" in response:
        return "approved" if response["approved"] else "denied"
    return "error" if "error" in response else "result"
