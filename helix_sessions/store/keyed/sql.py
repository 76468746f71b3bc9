"""The statements of notes, idempotency keys and grants."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connections

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


@cache
def grants(using: str, user_model: Any) -> str:
    """The permissions of a user, then those of the user's groups: which of the two, app, name. The tables are
    those of the project's user. It takes the key of the user twice."""
    quote = connections[using].ops.quote_name
    own: Any = user_model._meta.get_field("user_permissions")
    joined: Any = user_model._meta.get_field("groups")
    shared: Any = Group._meta.get_field("permissions")

    def named(granted: Any) -> str:
        return (
            f"JOIN {quote(Permission._meta.db_table)} p ON p.id = g.{quote(granted.m2m_reverse_name())}"
            f" JOIN {quote(ContentType._meta.db_table)} t ON t.id = p.content_type_id"
        )

    return (
        f"SELECT 0, t.app_label, p.codename FROM {quote(own.m2m_db_table())} g {named(own)}"  # noqa: S608
        f" WHERE g.{quote(own.m2m_column_name())} = %s"
        f" UNION ALL SELECT 1, t.app_label, p.codename FROM {quote(joined.m2m_db_table())} m"
        f" JOIN {quote(shared.m2m_db_table())} g"
        f" ON g.{quote(shared.m2m_column_name())} = m.{quote(joined.m2m_reverse_name())} {named(shared)}"
        f" WHERE m.{quote(joined.m2m_column_name())} = %s"
    )
