"""Truncate the transcript, and the model's context with it."""

from helix_sessions.store.context import context_rows, sql
from helix_sessions.store.engine import inputs, open_calls
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.unit_of_work import UnitOfWork


def truncate_messages(
    store: Store, session_id: str, count: int, *, expected_version: int | None = None
) -> int:
    """Keep the first `count` messages; returns how many were removed. They stay readable in the event
    log."""
    kept = inputs.integer(count, "count")
    with store._write(session_id, expected_version) as work:
        return truncate(work, kept)


def truncate(work: UnitOfWork, kept: int) -> int:
    """Hide all but the first `kept` messages of the locked session; return how many were removed."""
    session = work.session
    removed: int = max(0, session.message_count - kept)
    if removed:
        work.change(
            open_calls=open_calls.at(
                work.connection, session.session_id, session.open_calls, session.message_count, kept
            )
        )
        seq = work.event("messages_truncated", {"count": kept, "removed": removed})
        context_rows.take_back(work, kept, seq)
        work.statement(sql.TRUNCATE, [seq, session.session_id, kept, seq])
        work.change(message_count=kept)
    return removed
