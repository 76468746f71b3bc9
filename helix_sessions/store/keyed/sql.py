"""The statements of notes and idempotency keys."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from helix_sessions.models import IdempotentAnswer, Note
from helix_sessions.store.engine.dialect import Dialect
from helix_sessions.store.engine.tables import insert_sql, table

_NOTE = ("key", "document", "run_id")


@cache
def notes_in_range(dialect: Dialect, last_first: bool) -> str:
    """The notes of a session from one key to before another."""
    notes = table(Note)
    return (
        f"SELECT {notes.selection(dialect, _NOTE)} FROM {notes.name}"  # noqa: S608
        ' WHERE "session_id" = %s AND "key" >= %s AND "key" < %s'
        f' ORDER BY "key"{" DESC" if last_first else ""} LIMIT %s'
    )


def notes_by_key(dialect: Dialect, count: int) -> str:
    """So many notes of a session by their keys."""
    notes = table(Note)
    return (
        f"SELECT {notes.selection(dialect, _NOTE)} FROM {notes.name}"  # noqa: S608
        f' WHERE "session_id" = %s AND "key" IN ({", ".join(["%s"] * count)})'
    )


def remove_notes(dialect: Dialect, keys: Iterable[str]) -> tuple[str, Any]:
    """Remove notes of a session by their keys; the keys are one parameter, which comes with it."""
    condition, value = dialect.among('"key"', keys)
    return f'DELETE FROM {table(Note).name} WHERE "session_id" = %s AND {condition}', value  # noqa: S608


COPY_NOTES = (
    f'INSERT INTO {table(Note).name} ("session_id", "key", "run_id", "document")'  # noqa: S608
    f' SELECT %s, "key", "run_id", "document" FROM {table(Note).name} WHERE "session_id" = %s'
)
"""Give a session the notes of another."""

ANSWER = ("user_id", "key", "digest", "headers", "body", "created_at", "expires_at")

CLAIM = (
    f"{insert_sql(IdempotentAnswer, ANSWER, 1)}"
    ' ON CONFLICT ("user_id", "key") DO UPDATE SET "digest" = excluded."digest", "status" = NULL,'
    ' "created_at" = excluded."created_at", "expires_at" = excluded."expires_at"'
    f' WHERE {table(IdempotentAnswer).name}."expires_at" <= %s'
)
"""Take a key, or take it over when its time is over; it touches no row if it is taken."""


@cache
def answer(dialect: Dialect) -> str:
    """What was answered to the request of a key."""
    answers = table(IdempotentAnswer)
    return (
        f"SELECT {answers.selection(dialect, ('digest', 'status', 'headers', 'body'))}"  # noqa: S608
        f' FROM {answers.name} WHERE "user_id" = %s AND "key" = %s'
    )
