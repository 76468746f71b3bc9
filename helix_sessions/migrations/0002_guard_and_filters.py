"""What the models cannot say: the guard of the event log, and PostgreSQL's indexes of tags and metadata."""

from typing import Any

from django.db import migrations

from helix_sessions.models.guard import lower_guard_in_migration, raise_guard_in_migration

_INDEXES = {
    "helix_session_tags_gin": "tags",
    "helix_session_metadata_gin": "metadata",
}


def create_indexes(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        # Room in each page for the next version of its rows, so that steps touch no index (HOT).
        schema_editor.execute("ALTER TABLE helix_sessions_session SET (fillfactor = 60)")
        for name, column in _INDEXES.items():
            schema_editor.execute(
                f"CREATE INDEX {name} ON helix_sessions_session USING gin (({column}::jsonb) jsonb_path_ops)"
            )


def drop_indexes(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for name in _INDEXES:
            schema_editor.execute(f"DROP INDEX IF EXISTS {name}")


class Migration(migrations.Migration):
    dependencies = [("helix_sessions", "0001_initial")]

    operations = [
        migrations.RunPython(create_indexes, drop_indexes),
        migrations.RunPython(raise_guard_in_migration, lower_guard_in_migration),
    ]
