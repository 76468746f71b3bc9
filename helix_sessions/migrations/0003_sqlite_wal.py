"""On SQLite, let readers and the writer work side by side. The mode stays with the file."""

from typing import Any

from django.db import migrations


def use_write_ahead_log(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "sqlite":
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode=WAL")


class Migration(migrations.Migration):
    atomic = False  # the journal mode cannot change inside a transaction

    dependencies = [("helix_sessions", "0002_guard_and_filters")]

    operations = [migrations.RunPython(use_write_ahead_log, migrations.RunPython.noop)]
