"""The statements of branches and deletions."""

from functools import cache

from django.db import models

from helix_sessions.models import Event, Input, InputClaim, Message, MessageWords
from helix_sessions.store.engine.dialect import Dialect
from helix_sessions.store.engine.tables import table

_VISIBLE = (
    f'FROM {table(Message).name} WHERE "session_id" = %s AND "truncated_seq" IS NULL AND "position" < %s'
)
"""The first messages of a transcript."""


@cache
def copy_messages(dialect: Dialect) -> str:
    """Give a branch the first messages of its source; their events follow each other from a number on."""
    return (
        f'INSERT INTO {table(Message).name} ("session_id", "position", "seq", "role", "content")'
        f' SELECT %s, "position", "position" + {dialect.number}, "role", "content" {_VISIBLE}'
    )


@cache
def copy_events(dialect: Dialect) -> str:
    """Give a branch the events of these messages."""
    return (
        f'INSERT INTO {table(Event).name} ("session_id", "seq", "type", "message_position", "created_at")'
        f' SELECT %s, "position" + {dialect.number}, "role" || \'_message\', "position", {dialect.moment}'
        f" {_VISIBLE}"
    )


@cache
def copy_words(dialect: Dialect) -> str:
    """Give a branch the words of these messages."""
    words = table(MessageWords).name
    return (
        f'INSERT INTO {words} ("session_id", "seq", "searchable")'  # noqa: S608
        f' SELECT %s, m."position" + {dialect.number}, w."searchable" FROM {table(Message).name} m'
        f' JOIN {words} w ON w."session_id" = m."session_id" AND w."seq" = m."seq"'
        ' WHERE m."session_id" = %s AND m."truncated_seq" IS NULL AND m."position" < %s'
    )


@cache
def visible_messages(dialect: Dialect) -> str:
    """A range of the transcript."""
    messages = table(Message)
    return (
        f"SELECT {messages.selection(dialect, ('position', 'seq', 'role', 'content'))} FROM {messages.name}"  # noqa: S608
        ' WHERE "session_id" = %s AND "truncated_seq" IS NULL'
        ' AND "position" >= %s AND "position" < %s ORDER BY "position"'
    )


GIVE_CLAIMS_BACK = (
    f'DELETE FROM {table(InputClaim).name} WHERE "session_id" = %s AND "input_id" IN'  # noqa: S608
    f' (SELECT "input_id" FROM {table(Input).name} WHERE "session_id" = %s)'
)
"""Free the ids of a session's inputs."""


@cache
def remove(model: type[models.Model]) -> str:
    """Remove what belongs to a session from one of its tables."""
    return f'DELETE FROM {table(model).name} WHERE "session_id" = %s'  # noqa: S608
