"""The statements of the recovery of runs."""

from functools import cache

from helix_sessions.messages.repairs import READ_TYPES
from helix_sessions.models import Event, Message, Session
from helix_sessions.store.engine.dialect import Dialect
from helix_sessions.store.engine.tables import table
from helix_sessions.store.transcript.sql import MESSAGE_OF_EVENT, event_data

SEQ_OF_MESSAGE = (
    f'SELECT "seq" FROM {table(Message).name}'  # noqa: S608
    ' WHERE "session_id" = %s AND "position" = %s AND "truncated_seq" IS NULL'
)
"""The event of the message at a position."""


@cache
def recent_events(dialect: Dialect) -> str:
    """The end of the log, as far as a recovery reads it."""
    return (
        f'SELECT e."seq", e."type", {event_data(dialect)}, e."message_position", m."truncated_seq"'  # noqa: S608
        f" FROM {table(Event).name} e {MESSAGE_OF_EVENT}"
        ' WHERE e."session_id" = %s AND e."seq" >= %s'
        f' AND e."type" IN ({", ".join(["%s"] * len(READ_TYPES))}) ORDER BY e."seq"'
    )


LAST_WORD = (
    f'SELECT "role", "seq" FROM {table(Message).name}'  # noqa: S608
    ' WHERE "session_id" = %s AND "position" < %s AND "truncated_seq" IS NULL'
    ' AND "role" <> \'system\' ORDER BY "position" DESC LIMIT 1'
)
"""The last message of a person or a model before a position; what the context is told does not count."""


@cache
def children(dialect: Dialect, columns: tuple[str, ...], parents: str) -> str:
    """Columns of the sessions whose parents fit a condition."""
    sessions = table(Session)
    return f"SELECT {sessions.selection(dialect, columns)} FROM {sessions.name} WHERE {parents}"  # noqa: S608


@cache
def used_below(dialect: Dialect, columns: tuple[str, ...]) -> str:
    """Columns of the sessions below one that have used something, at any depth; each once, also in a
    circle."""
    sessions = table(Session)
    return (
        "WITH RECURSIVE below (session_id) AS ("  # noqa: S608
        f' SELECT "session_id" FROM {sessions.name} WHERE "parent_session_id" = %s'
        f' UNION SELECT s."session_id" FROM {sessions.name} s'
        ' JOIN below ON s."parent_session_id" = below.session_id)'
        f" SELECT {sessions.selection(dialect, columns, 's.')}"
        f' FROM {sessions.name} s JOIN below ON s."session_id" = below.session_id'
        ' WHERE s."usage" IS NOT NULL'
    )
