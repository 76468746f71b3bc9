"""The words of messages, and their full-text index, which the database keeps by itself.

A row is written with its message, where `TRANSCRIPT_SEARCH` is on and content is not encrypted. PostgreSQL
has a GIN index of an expression, SQLite an FTS5 table and triggers. A migration that rebuilds the table on
SQLite drops the index before and creates it after.
"""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.models.constraints import session_key
from helix_sessions.models.fields import IdField, Sql


class MessageWords(models.Model):
    """The words of the message that the event `seq` recorded, folded, with a space in between."""

    pk = models.CompositePrimaryKey("session_id", "seq")
    session = session_key()
    seq = models.BigIntegerField()
    searchable = models.TextField()

    def __str__(self) -> str:
        return f"{self.session_id} words {self.seq}"


_TABLE = "helix_sessions_messagewords"
_INDEX = "helix_sessions_transcript_words"
_VECTOR = "to_tsvector('pg_catalog.simple'::regconfig, searchable)"

_POSTGRESQL = (f"CREATE INDEX helix_message_words_gin ON {_TABLE} USING gin ({_VECTOR})",)
_POSTGRESQL_DROP = ("DROP INDEX IF EXISTS helix_message_words_gin",)

# One word for the place of each row, so that its words are forgotten by index.
_PLACE = "hex({0}.session_id) || 'x' || {0}.seq"
_LEARN = (
    "INSERT INTO helix_sessions_transcript_words (place, session_id, searchable)"  # noqa: S608
    f" VALUES ({_PLACE.format('NEW')}, NEW.session_id, NEW.searchable);"
)
_FORGET = (
    "DELETE FROM helix_sessions_transcript_words WHERE rowid IN"  # noqa: S608
    " (SELECT rowid FROM helix_sessions_transcript_words"
    f" WHERE helix_sessions_transcript_words MATCH 'place:' || {_PLACE.format('OLD')});"
)
_TRIGGER = "CREATE TRIGGER helix_message_words_{0} AFTER {0} ON helix_sessions_messagewords BEGIN {1} END"
_SQLITE = (
    f"CREATE VIRTUAL TABLE {_INDEX} USING fts5(place, session_id UNINDEXED, searchable,"
    " tokenize = \"unicode61 remove_diacritics 0 categories 'L* N* Co M*'\")",
    _TRIGGER.format("insert", _LEARN),
    _TRIGGER.format("update", f"{_FORGET} {_LEARN}"),
    _TRIGGER.format("delete", _FORGET),
)
_SQLITE_DROP = (
    *(f"DROP TRIGGER IF EXISTS helix_message_words_{when}" for when in ("insert", "update", "delete")),
    f"DROP TABLE IF EXISTS {_INDEX}",
)


def create_index(connection: BaseDatabaseWrapper) -> None:
    """Create the full-text index, with the words that are there."""
    drop_index(connection)
    if connection.vendor == "postgresql":
        _run(connection, _POSTGRESQL)
    elif connection.vendor == "sqlite":
        fill = (
            "INSERT INTO helix_sessions_transcript_words (place, session_id, searchable)"  # noqa: S608
            f" SELECT {_PLACE.format('w')}, session_id, searchable FROM helix_sessions_messagewords w"
        )
        _run(connection, (*_SQLITE, fill))


def drop_index(connection: BaseDatabaseWrapper) -> None:
    _run(connection, _POSTGRESQL_DROP if connection.vendor == "postgresql" else _SQLITE_DROP)


def create_index_in_migration(apps: Any, schema_editor: Any) -> None:
    create_index(schema_editor.connection)


def drop_index_in_migration(apps: Any, schema_editor: Any) -> None:
    drop_index(schema_editor.connection)


def _run(connection: BaseDatabaseWrapper, statements: tuple[str, ...]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@IdField.register_lookup
class Says(models.Lookup):
    """`session_id__says=["red", "shoes"]`: a message of the session has all of these words."""

    lookup_name = "says"
    prepare_rhs = False

    def get_db_prep_lookup(self, value: Any, connection: BaseDatabaseWrapper) -> Sql:
        return "%s", (value,)

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> Sql:
        column, params = self.process_lhs(compiler, connection)
        quoted = " AND ".join(f'"{word}"' for word in self.rhs)
        found = f"{column} IN (SELECT session_id FROM {_INDEX} WHERE {_INDEX} MATCH %s)"  # noqa: S608
        return found, (*params, f"searchable : ({quoted})")

    def as_postgresql(self, compiler: Any, connection: BaseDatabaseWrapper) -> Sql:
        column, params = self.process_lhs(compiler, connection)
        query = "plainto_tsquery('pg_catalog.simple'::regconfig, %s)"
        found = f"{column} IN (SELECT session_id FROM {_TABLE} WHERE {_VECTOR} @@ {query})"  # noqa: S608
        return found, (*params, " ".join(self.rhs))
