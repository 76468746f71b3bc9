"""Makes the words of transcripts as the settings want them: what is missing is added, or all are removed."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.models import Message, MessageWords, Session
from helix_sessions.store.engine import message_words
from helix_sessions.store.engine.connection import execute, fetch
from helix_sessions.store.engine.session_rows import lock_row
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.maintenance import sql
from helix_sessions.store.maintenance.job import Job, ids_of

_log = logging.getLogger("helix_sessions.transcript_index")

_AT_ONCE = 200
"""So many messages are read, and their words written, under one lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSummary:
    """What the job did."""

    sessions: int = 0
    added: int = 0
    """Messages whose words are kept now."""
    removed: int = 0
    errors: int = 0


def index_transcripts(
    store: Store,
    *,
    on_progress: Callable[[IndexSummary], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> IndexSummary:
    """Keep the words of all messages; where `TRANSCRIPT_SEARCH` is off or content is encrypted, of none.

    It can be stopped and repeated at any time, next to any load: a page of messages at a time, under the lock
    of their session.
    """
    job = Job(IndexSummary(), _log, on_progress=on_progress, should_stop=should_stop)
    kept = message_words.are_kept()
    rows = Session.objects.using(store.using)
    if not kept:
        rows = rows.filter(session_id__in=MessageWords.objects.using(store.using).values("session_id"))
    for session_id in job.over(ids_of(rows)):
        with job.attempt(f"The words of session {session_id!r} could not be kept", ignore=SessionNotFound):
            job.count(**(_add(store, session_id) if kept else _remove(store, session_id)))
        job.count(sessions=1)
    return job.summary


def _add(store: Store, session_id: str) -> dict[str, int]:
    added, after, messages = 0, 0, table(Message)
    page = sql.messages_without_words(store._dialect)
    while True:
        with locking_transaction(store.using) as connection:
            lock_row(connection, session_id, ("version",))
            found = fetch(connection, page, [session_id, after, _AT_ONCE])
            if found:
                texts = [
                    (session_id, seq, messages.open_text("content", text, session_id, position, seq))
                    for position, seq, text in found
                ]
                message_words.add(connection, texts)
        added += len(found)
        if len(found) < _AT_ONCE:
            return {"added": added}
        after = found[-1][1]


def _remove(store: Store, session_id: str) -> dict[str, int]:
    with locking_transaction(store.using) as connection:
        lock_row(connection, session_id, ("version",))
        return {"removed": execute(connection, sql.REMOVE_WORDS, [session_id])}
