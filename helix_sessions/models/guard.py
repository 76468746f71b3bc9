"""The database's own guard of the event log: triggers that refuse to change it while its session lives.

A message is stored once, and its event points to it; so both tables are guarded. Rows may be deleted when
their session is deleted, or when its log begins later (`first_seq`). A migration that rebuilds one of these
tables on SQLite lowers the guard before and raises it after.
"""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

_POSTGRESQL_RAISE = """
CREATE OR REPLACE FUNCTION helix_sessions_guard_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM touched JOIN helix_sessions_session s ON s.session_id = touched.session_id
        WHERE touched.seq >= s.first_seq
    ) THEN
        RAISE EXCEPTION 'the event log of a living session cannot be changed'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION helix_sessions_guard_message() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a message cannot be rewritten' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER helix_guard_event_update AFTER UPDATE ON helix_sessions_event
    REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION helix_sessions_guard_log();
CREATE TRIGGER helix_guard_event_delete AFTER DELETE ON helix_sessions_event
    REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION helix_sessions_guard_log();
CREATE TRIGGER helix_guard_message_delete AFTER DELETE ON helix_sessions_message
    REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION helix_sessions_guard_log();
CREATE TRIGGER helix_guard_message_update BEFORE UPDATE OF session_id, position, seq, role, content
    ON helix_sessions_message FOR EACH ROW EXECUTE FUNCTION helix_sessions_guard_message();
"""

_SQLITE_RAISE = """
CREATE TRIGGER helix_guard_event_update BEFORE UPDATE ON helix_sessions_event
WHEN EXISTS (SELECT 1 FROM helix_sessions_session s WHERE s.session_id = OLD.session_id)
BEGIN SELECT RAISE(ABORT, 'the event log of a living session cannot be changed'); END;
CREATE TRIGGER helix_guard_event_delete BEFORE DELETE ON helix_sessions_event
WHEN EXISTS (
    SELECT 1 FROM helix_sessions_session s WHERE s.session_id = OLD.session_id AND OLD.seq >= s.first_seq
)
BEGIN SELECT RAISE(ABORT, 'the event log of a living session cannot be changed'); END;
CREATE TRIGGER helix_guard_message_delete BEFORE DELETE ON helix_sessions_message
WHEN EXISTS (
    SELECT 1 FROM helix_sessions_session s WHERE s.session_id = OLD.session_id AND OLD.seq >= s.first_seq
)
BEGIN SELECT RAISE(ABORT, 'the event log of a living session cannot be changed'); END;
CREATE TRIGGER helix_guard_message_update
BEFORE UPDATE OF session_id, position, seq, role, content ON helix_sessions_message
BEGIN SELECT RAISE(ABORT, 'a message cannot be rewritten'); END;
"""

_TRIGGERS = {
    "helix_guard_event_update": "helix_sessions_event",
    "helix_guard_event_delete": "helix_sessions_event",
    "helix_guard_message_update": "helix_sessions_message",
    "helix_guard_message_delete": "helix_sessions_message",
}


def raise_guard(connection: BaseDatabaseWrapper) -> None:
    """Create the triggers."""
    lower_guard(connection)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_POSTGRESQL_RAISE)
    elif connection.vendor == "sqlite":
        for statement in _SQLITE_RAISE.split("END;"):
            if statement.strip():
                with connection.cursor() as cursor:
                    cursor.execute(f"{statement} END")


def lower_guard(connection: BaseDatabaseWrapper) -> None:
    """Drop the triggers; to rebuild the tables, and where a distributed database takes no triggers."""
    on = connection.vendor == "postgresql"
    there = _triggers(connection)  # Citus refuses to drop one that is not there
    with connection.cursor() as cursor:
        for trigger, table in _TRIGGERS.items():
            if trigger in there:
                cursor.execute(f"DROP TRIGGER {trigger}{f' ON {table}' if on else ''}")
        if on:
            cursor.execute("DROP FUNCTION IF EXISTS helix_sessions_guard_log()")
            cursor.execute("DROP FUNCTION IF EXISTS helix_sessions_guard_message()")


def is_guarded(connection: BaseDatabaseWrapper) -> bool:
    """Whether every trigger exists."""
    return _triggers(connection, enabled=True) == set(_TRIGGERS)


def _triggers(connection: BaseDatabaseWrapper, *, enabled: bool = False) -> set[str]:
    """Those of ours that exist."""
    if connection.vendor == "postgresql":
        sql = "SELECT tgname FROM pg_trigger WHERE tgname LIKE 'helix\\_guard\\_%'"
        sql += " AND tgenabled <> 'D'" if enabled else ""
    else:
        sql = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'helix_guard_*'"
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return {name for (name,) in cursor.fetchall()}


def hinders_flush(connection: BaseDatabaseWrapper) -> bool:
    """Whether `manage.py flush` meets the guard. On SQLite it deletes table by table, in any order, so the
    log may come before its sessions; PostgreSQL truncates, which no trigger here hinders."""
    return connection.vendor == "sqlite" and is_guarded(connection)


def raise_guard_in_migration(apps: Any, schema_editor: Any) -> None:
    raise_guard(schema_editor.connection)


def lower_guard_in_migration(apps: Any, schema_editor: Any) -> None:
    lower_guard(schema_editor.connection)
