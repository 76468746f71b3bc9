"""What the database keeps of memories by itself: the full-text index follows each write, and vectors go with
their memory.

PostgreSQL has a generated column with a GIN index and a cascading foreign key. SQLite has an FTS5 table and
triggers. Sealed words are in no index. A migration that rebuilds the table on SQLite drops the index before
and creates it after.
"""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

_POSTGRESQL = (
    "ALTER TABLE helix_sessions_memory ADD COLUMN words tsvector GENERATED ALWAYS AS"
    " (CASE WHEN left(searchable, 1) = ' ' THEN NULL"
    " ELSE to_tsvector('pg_catalog.simple'::regconfig, searchable) END) STORED",
    "CREATE INDEX helix_memory_words_gin ON helix_sessions_memory USING gin (words)",
)
_POSTGRESQL_DROP = ("ALTER TABLE helix_sessions_memory DROP COLUMN IF EXISTS words",)
_KEY = (
    "ALTER TABLE helix_sessions_memoryvector ADD CONSTRAINT helix_memory_vector_of FOREIGN KEY (memory_id)"
    " REFERENCES helix_sessions_memory (memory_id) ON DELETE CASCADE"
)
_KEY_DROP = "ALTER TABLE helix_sessions_memoryvector DROP CONSTRAINT IF EXISTS helix_memory_vector_of"

_FORGET = (
    "DELETE FROM helix_sessions_memory_words WHERE rowid IN (SELECT rowid FROM helix_sessions_memory_words"
    " WHERE helix_sessions_memory_words MATCH 'memory_id:' || OLD.memory_id);"
)
_FORGET_VECTORS = "DELETE FROM helix_sessions_memoryvector WHERE memory_id = OLD.memory_id;"
_LEARN = (
    "INSERT INTO helix_sessions_memory_words (memory_id, searchable)"
    " SELECT NEW.memory_id, NEW.searchable WHERE substr(NEW.searchable, 1, 1) NOT IN ('', ' ');"
)
_SQLITE = (
    "CREATE VIRTUAL TABLE helix_sessions_memory_words USING fts5(memory_id, searchable,"
    " tokenize = \"unicode61 remove_diacritics 0 categories 'L* N* Co M*'\")",
    f"CREATE TRIGGER helix_memory_words_insert AFTER INSERT ON helix_sessions_memory BEGIN {_LEARN} END",
    "CREATE TRIGGER helix_memory_words_update AFTER UPDATE OF searchable ON helix_sessions_memory"
    f" BEGIN {_FORGET} {_LEARN} END",
    "CREATE TRIGGER helix_memory_words_delete AFTER DELETE ON helix_sessions_memory"
    f" BEGIN {_FORGET} {_FORGET_VECTORS} END",
)
_SQLITE_DROP = (
    *(f"DROP TRIGGER IF EXISTS helix_memory_words_{when}" for when in ("insert", "update", "delete")),
    "DROP TABLE IF EXISTS helix_sessions_memory_words",
)


def create_words(connection: BaseDatabaseWrapper) -> None:
    """Index the words of all memories, those that are there included."""
    drop_words(connection)
    if connection.vendor == "postgresql":
        _run(connection, _POSTGRESQL)
    elif connection.vendor == "sqlite":
        fill = _LEARN.replace("NEW.", "").replace(" WHERE", " FROM helix_sessions_memory WHERE")
        _run(connection, (*_SQLITE, fill))


def drop_words(connection: BaseDatabaseWrapper) -> None:
    _run(connection, _POSTGRESQL_DROP if connection.vendor == "postgresql" else _SQLITE_DROP)


def create_vector_key(connection: BaseDatabaseWrapper) -> None:
    """On PostgreSQL, let vectors go with their memory. SQLite has a trigger for it."""
    if connection.vendor == "postgresql":
        _run(connection, (_KEY,))


def drop_vector_key(connection: BaseDatabaseWrapper) -> None:
    if connection.vendor == "postgresql":
        _run(connection, (_KEY_DROP,))


def create_words_in_migration(apps: Any, schema_editor: Any) -> None:
    create_words(schema_editor.connection)
    create_vector_key(schema_editor.connection)


def drop_words_in_migration(apps: Any, schema_editor: Any) -> None:
    drop_vector_key(schema_editor.connection)
    drop_words(schema_editor.connection)


def _run(connection: BaseDatabaseWrapper, statements: tuple[str, ...]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
