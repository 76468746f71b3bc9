"""Recovery of a session whose worker died: its run is closed, its open tool calls are failed."""

from collections.abc import Iterable, Iterator
from functools import cache

from helix_sessions.content import documents
from helix_sessions.content.encryption import SEALED
from helix_sessions.messages.repairs import READ_TYPES, LoggedEvent, repairs
from helix_sessions.models import Event, Message
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_rows import LIGHT_COLUMNS
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import runs
from helix_sessions.store.transcript import log_rows
from helix_sessions.types import Wake

MESSAGES_LOOKED_AT = 2_000
EVENTS_LOOKED_AT = 20_000
"""How far back a wake looks. A model is not called while a call of an earlier turn is open, so what a dead
worker left open is at the end of the log; no session's whole history is read."""

_COLUMNS = (*LIGHT_COLUMNS, "pending_client_tool_calls", "suspended_awaiting_children")


def wake(store: Store, session_id: str) -> Wake:
    """Recover a session after a crash.

    Closes the run left running as `interrupted`. Fails each tool call that has no answer, with a
    `tool_error` and a tool message, and never executes it again; calls that wait for a client or a
    sub-session are left alone. A result that was logged but never reached the transcript is added to
    it. Doing it twice repairs nothing twice; each time a `session_woken` is logged.
    """
    with store._write(session_id, columns=_COLUMNS) as work:
        prior_head: int = work.session.head_seq
        repair_calls(work, recent_events(work))
        _close_run(work)
        work.versioned = work.session.head_seq > prior_head
        work.event("session_woken", {"prior_head": prior_head})
    return Wake(prior_head=prior_head, head_seq=work.session.head_seq)


def repair_calls(work: UnitOfWork, events: Iterable[LoggedEvent]) -> bool:
    """Give each call of the locked session that nobody will answer a result; whether there was one."""
    waiting = {
        call_id
        for text in (work.session.pending_client_tool_calls, work.session.suspended_awaiting_children)
        if text is not None
        for call_id in documents.load(text)
    }
    found = repairs(events, waiting)
    for repair in found:
        message = repair.message
        if repair.is_new:
            work.event(
                "tool_error",
                {
                    "tool_call_id": message["tool_call_id"],
                    "tool_name": message["tool_name"],
                    "error": message["content"],
                },
            )
        work.message("tool", documents.write(message))
    return bool(found)


def _close_run(work: UnitOfWork) -> None:
    if work.session.run_id is not None:
        run = runs.find(work.connection.alias, work.session.session_id, work.session.run_id)
        runs.advance(work, run, {"status": "interrupted"})


def recent_events(work: UnitOfWork) -> Iterator[LoggedEvent]:
    """What the end of the locked session's log says of messages and tools."""
    session, vendor = work.session, work.connection.vendor
    first = max(0, session.head_seq - EVENTS_LOOKED_AT)
    if session.message_count > MESSAGES_LOOKED_AT:
        place = [session.session_id, session.message_count - MESSAGES_LOOKED_AT]
        first = max(first, fetch(work.connection, _message_seq_sql(), place)[0][0])
    for seq, kind, text, position, truncated_seq in fetch(
        work.connection, _recent_sql(vendor), [session.session_id, first, *READ_TYPES]
    ):
        if text is not None and text.startswith(SEALED):
            text = log_rows.opened_data(session.session_id, seq, position, text)
        if _may_matter(kind, text):
            data = None if text is None else documents.load(text)
            yield LoggedEvent(seq=seq, type=kind, data=data, truncated_seq=truncated_seq)


def _may_matter(kind: str, text: str | None) -> bool:
    """Most messages neither call nor answer; they need not be parsed to know that."""
    if kind == "assistant_message":
        return text is not None and '"tool_' in text
    return kind != "user_message" or (text is not None and "tool_result" in text)


@cache
def _message_seq_sql() -> str:
    return (
        f'SELECT "seq" FROM {table(Message).name}'  # noqa: S608
        ' WHERE "session_id" = %s AND "position" = %s AND "truncated_seq" IS NULL'
    )


@cache
def _recent_sql(vendor: str) -> str:
    cast = "::text" if vendor == "postgresql" else ""
    return (
        f'SELECT e."seq", e."type", COALESCE(e."data", m."content"){cast}, e."message_position",'  # noqa: S608
        f' m."truncated_seq" FROM {table(Event).name} e {log_rows.MESSAGE}'
        ' WHERE e."session_id" = %s AND e."seq" >= %s'
        f' AND e."type" IN ({", ".join(["%s"] * len(READ_TYPES))}) ORDER BY e."seq"'
    )
