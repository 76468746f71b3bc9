"""Recovery of a session whose worker died: its run is closed, its open tool calls are failed."""

from collections.abc import Collection, Iterable, Iterator

from helix_sessions.content import documents
from helix_sessions.content.encryption import SEALED
from helix_sessions.messages.repairs import READ_TYPES, LoggedEvent, repairs
from helix_sessions.messages.tool_ledger import may_call_or_answer, tool_event
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_columns import LIGHT_COLUMNS
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import ownership, runs, sql
from helix_sessions.store.transcript import log_rows
from helix_sessions.types import Wake

MESSAGES_LOOKED_AT = 2_000
EVENTS_LOOKED_AT = 20_000
"""How far back a wake reads. A model is not called while a call of an earlier turn is open, so what a dead
worker left open is at the end of the log; no session's whole history is read."""

OUTCOME_UNKNOWN = "outcome_unknown"
"""The code of a call that a dead process left open: it is unknown whether its tool did what it does."""

_COLUMNS = (*LIGHT_COLUMNS, "pending_client_tool_calls", "suspended_awaiting_children")


def wake(store: Store, session_id: str) -> Wake:
    """Recover a session after a crash.

    Closes the run left running as `interrupted`. Fails each tool call that has no answer, with a
    `tool_error` and a tool message, and never executes it again; calls that wait for a client or a
    sub-session are left alone. A result that was logged but never reached the transcript is added to
    it. Who drove the session no longer may; if a run was under way, another is asked for. Doing it twice
    repairs nothing twice; each time a `session_woken` is logged.
    """
    with store._write(session_id, columns=_COLUMNS) as work:
        prior_head: int = work.session.head_seq
        repair_calls(work, recent_events(work))
        if work.is_drivers:
            _close_run(work)
        else:
            ownership.interrupt(work, "session_woken" if work.session.lease_owner is not None else None)
        work.versioned = work.session.head_seq > prior_head
        work.event("session_woken", {"prior_head": prior_head})
    return Wake(prior_head=prior_head, head_seq=work.session.head_seq)


def repair_calls(work: UnitOfWork, events: Iterable[LoggedEvent], spared: Collection[str] = ()) -> bool:
    """Give a result to each call of the locked session that has no one left to answer it, but for those that
    are `spared`; whether there was one."""
    waiting = set(spared) | {
        call_id
        for text in (work.session.pending_client_tool_calls, work.session.suspended_awaiting_children)
        if text is not None
        for call_id in documents.load(text)
    }
    found = repairs(events, waiting)
    for repair in found:
        if repair.is_new:
            said = repair.message["content"]
            work.event("tool_error", tool_event(repair.call, error=said, code=OUTCOME_UNKNOWN))
        work.message("tool", documents.write(repair.message))
    return bool(found)


def _close_run(work: UnitOfWork) -> None:
    if work.session.run_id is not None:
        run = runs.find(work.connection.alias, work.session.session_id, work.session.run_id)
        runs.advance(work, run, {"status": "interrupted"})


def recent_events(work: UnitOfWork) -> Iterator[LoggedEvent]:
    """The events of messages and tools at the end of the locked session's log."""
    session = work.session
    first = max(0, session.head_seq - EVENTS_LOOKED_AT)
    if session.message_count > MESSAGES_LOOKED_AT:
        place = [session.session_id, session.message_count - MESSAGES_LOOKED_AT]
        first = max(first, fetch(work.connection, sql.SEQ_OF_MESSAGE, place)[0][0])
    for seq, kind, text, position, truncated_seq in fetch(
        work.connection, sql.recent_events(work.dialect), [session.session_id, first, *READ_TYPES]
    ):
        if text is not None and text.startswith(SEALED):
            text = log_rows.opened_data(session.session_id, seq, position, text)
        if _may_matter(kind, text):
            data = None if text is None else documents.load(text)
            yield LoggedEvent(seq=seq, type=kind, data=data, truncated_seq=truncated_seq)


def _may_matter(event_type: str, text: str | None) -> bool:
    role, is_message, _ = event_type.partition("_message")
    return not is_message or (text is not None and may_call_or_answer(role, text))
