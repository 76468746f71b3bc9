"""On PostgreSQL, leave room in the pages of notes: one that is written again and again stays where it is."""

from typing import Any

from django.db import migrations


def leave_room(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE helix_sessions_note SET (fillfactor = 80)")


class Migration(migrations.Migration):
    dependencies = [("helix_sessions", "0014_audit_actions")]

    operations = [migrations.RunPython(leave_room, migrations.RunPython.noop)]
