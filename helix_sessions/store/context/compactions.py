"""Compaction: the model sees a summary in place of old messages, and the transcript keeps them."""

import inspect
import os
import socket
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import HelixSessionsError, InvalidInput, SessionBusy, SessionNotFound
from helix_sessions.models import Message, Session
from helix_sessions.store.context import compaction_plan, sql
from helix_sessions.store.context.compaction_plan import Fold, PlacedMessage
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_rows import SessionRow, check_owner, check_row_version
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.types import Compaction, CompactionPolicy, Summarize, SummaryRequest

TIMEOUT = timedelta(minutes=10)
"""How long a compaction may take before another of the same session may begin, if it is unknown whether its
process still works on it."""

_ATTEMPTS = 20
_HEAD = ("owner_id", "version", "status")


class _Attempt(NamedTuple):
    number: int
    started_seq: int
    fold: Fold


class _Before(NamedTuple):
    """The transcript since the latest compaction's summary, and that summary."""

    number: int | None
    summary: str | None
    replaced: int
    """How many messages the latest compaction stands for."""
    lines: list[PlacedMessage]


def compact(
    store: Store,
    session_id: str,
    summarize: Summarize,
    policy: CompactionPolicy | dict[str, Any],
    *,
    reason: str = "manual",
    expected_version: int | None = None,
) -> Compaction | None:
    """Summarize the older messages, and let the model see the summary and the text of the newest in their
    place. `None` if there is nothing older, if the summary is blank, or while another compaction of this
    session is in progress.

    No lock is held while `summarize` works, so a message appended meanwhile stays visible; when
    messages were truncated meanwhile, its summary is dropped. What it raises is raised here.
    """
    key, version = session_key(session_id), inputs.expected_version(expected_version)
    rules = inputs.value_of(CompactionPolicy, policy, "A compaction policy")
    why = inputs.identifier(reason, "The reason of a compaction")
    if not callable(summarize):
        raise InvalidInput("summarize must be a function of a SummaryRequest.")
    begun = _begin(store, key, rules, why, version)
    if begun is None:
        return None
    before, attempt = begun
    try:
        request = SummaryRequest(
            previous_summary=before.summary,
            messages=compaction_plan.messages_of(attempt.fold.older),
            max_tokens=rules.summary_tokens,
        )
        summary = _summary(summarize, request)
        message = compaction_plan.compaction_message(
            summary, compaction_plan.messages_of(attempt.fold.recent)
        )
        if summary.strip():
            return _finish(store, key, attempt, why, summary, message)
    except BaseException:
        with suppress(HelixSessionsError):
            _abandon(store, key, attempt)
        raise
    _abandon(store, key, attempt)
    return None


def list_compactions(store: Store, session_id: str) -> list[Compaction]:
    """The compactions of the present transcript, oldest first; the model sees the last."""
    key = session_key(session_id)
    store._read(key, ("session_id",))
    rows = models.Compaction.objects.using(store.using).standing().filter(session_id=key)
    return [_value(row) for row in rows.order_by("number")]


def _begin(
    store: Store, session_id: str, policy: CompactionPolicy, reason: str, version: int | None
) -> tuple[_Before, _Attempt] | None:
    """Choose what to fold, without a lock, and record it under the lock, if the messages are still there."""
    for _ in range(_ATTEMPTS):
        before = _to_compact(store, session_id, version)
        fold = compaction_plan.fold(before.lines, policy)
        if fold is None:
            return None
        with store._write(session_id, version) as work:
            rows = models.Compaction.objects.using(store.using).filter(session_id=session_id)
            latest = rows.order_by("-number").first()
            if latest is not None and _is_under_way(latest, work):
                return None
            if _is_current(work, before):
                return before, _start(work, reason, latest, before, fold)
    raise SessionBusy(f"The transcript of session {session_id!r} changed faster than it could be read.")


def _to_compact(store: Store, session_id: str, version: int | None) -> _Before:
    rows = fetch(store._connection, sql.to_compact(store._dialect), [session_id] * 2)
    if not rows:
        raise SessionNotFound(session_id=session_id)
    (_, replaced, number, summary, *columns), *found = rows
    head = SessionRow(_HEAD, table(Session).decoder(_HEAD)(columns))
    check_owner(session_id, head, store._owner)
    check_row_version(head, version)
    rows_of = table(Message)
    messages = documents.load_all(
        [rows_of.open_text("content", text, session_id, place, seq) for place, seq, _, text, *_ in found]
    )
    lines = [
        PlacedMessage(position, seq, message, update is not None)
        for (position, seq, update, *_), message in zip(found, messages, strict=True)
    ]
    if summary is not None:
        opened = table(models.Compaction).open_text("summary", summary, session_id, number)
        return _Before(number, documents.load(opened), replaced, lines)
    return _Before(number, None, replaced, lines)


def _finish(
    store: Store, session_id: str, attempt: _Attempt, reason: str, summary: str, message: dict[str, Any]
) -> Compaction | None:
    """Finish the compaction, unless another process took over or its messages were truncated."""
    lines = [*attempt.fold.older, *attempt.fold.recent]
    content, text = documents.dump(message), documents.dump(summary)
    with store._write(session_id) as work:
        row = _own(store.using, session_id, attempt)
        if row is None:
            return None
        if not _still_there(work, lines[-1]):
            _drop(work, attempt)
            return None
        data = {"from_seq": row.from_seq, "to_seq": row.to_seq, "reason": reason}
        seq = work.event("compacted", data)
        changes = {"compacted_seq": seq, "compacted_at": work.now, "summary": text, "content": content}
        work.update(models.Compaction, {"number": attempt.number}, **changes, holder=None)
    row.compacted_seq, row.compacted_at, row.summary, row.content = seq, work.now, summary, message
    return _value(row)


def _abandon(store: Store, session_id: str, attempt: _Attempt) -> None:
    """Abandon the compaction, so that the next may begin."""
    with store._write(session_id) as work:
        if _own(store.using, session_id, attempt) is not None:
            _drop(work, attempt)


def _start(
    work: UnitOfWork, reason: str, latest: models.Compaction | None, before: _Before, fold: Fold
) -> _Attempt:
    lines = [*fold.older, *fold.recent]
    new = [line for line in lines if line.position >= before.replaced]
    first, last = (new or lines)[0], lines[-1]
    kept = fold.recent[0].position if fold.recent else last.position + 1
    if latest is not None and latest.compacted_seq is None:  # its process is dead
        work.delete(models.Compaction, ("number", "=", latest.number))
    work.versioned = False
    number = 1 if latest is None else latest.number + 1
    seq = work.event("compaction_started", {"reason": reason})
    work.insert(
        models.Compaction,
        number=number,
        started_seq=seq,
        started_at=work.now,
        holder=_holder(),
        fence=work.session.fence,
        reason=reason,
        from_seq=first.seq,
        to_seq=last.seq,
        from_position=first.position,
        kept_position=kept,
        end_position=last.position + 1,
    )
    return _Attempt(number, seq, fold)


def _is_current(work: UnitOfWork, before: _Before) -> bool:
    """Whether the transcript still begins with what was read, and has no newer compaction."""
    rows = models.Compaction.objects.using(work.connection.alias).standing()
    found = rows.filter(session_id=work.session.session_id).order_by("-number")
    latest = found.values_list("number", flat=True).first()
    return latest == before.number and _still_there(work, before.lines[-1])


def _own(using: str, session_id: str, attempt: _Attempt) -> models.Compaction | None:
    rows = models.Compaction.objects.using(using).filter(session_id=session_id, number=attempt.number)
    return rows.filter(started_seq=attempt.started_seq, compacted_seq__isnull=True).first()


def _drop(work: UnitOfWork, attempt: _Attempt) -> None:
    work.versioned = False
    work.delete(models.Compaction, ("number", "=", attempt.number))


def _still_there(work: UnitOfWork, last: PlacedMessage) -> bool:
    """Messages leave a transcript from its end, so where the last one is the others are."""
    rows = Message.objects.using(work.connection.alias).visible()
    return rows.filter(session_id=work.session.session_id, position=last.position, seq=last.seq).exists()


def _summary(summarize: Summarize, request: SummaryRequest) -> str:
    summary = summarize(request)
    if inspect.isawaitable(summary):
        summary = async_to_sync(_awaited)(summary)
    if summary is None:
        return ""
    if not isinstance(summary, str):
        raise InvalidInput(f"A summary must be a string, not {type(summary).__name__}.")
    documents.dump(summary)
    return summary


async def _awaited(summary: Any) -> Any:
    return await summary


def _holder() -> str:
    """The holder: this process, by host name and process id."""
    return f"{socket.gethostname()[:200]}:{os.getpid()}"


def _is_under_way(row: models.Compaction, work: UnitOfWork) -> bool:
    """Whether this compaction is in progress: not if its process is dead, the session has a new owner since,
    or it timed out."""
    if row.compacted_seq is not None:
        return False
    since: datetime = row.started_at
    if work.now - since > TIMEOUT or row.fence != work.session.fence:
        return False
    host, _, number = (row.holder or "").rpartition(":")
    return host != _holder().rpartition(":")[0] or _is_alive(int(number))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _value(row: models.Compaction) -> Compaction:
    return Compaction(
        session_id=row.session_id,
        seq=row.compacted_seq,  # type: ignore[arg-type]
        from_seq=row.from_seq,
        to_seq=row.to_seq,
        reason=row.reason,
        summary=row.summary,
        message=row.content,
        message_count=row.end_position - row.from_position,
        created_at=row.compacted_at,  # type: ignore[arg-type]
    )
