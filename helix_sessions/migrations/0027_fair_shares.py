"""Owners in turn, priorities, and what runs at once.

The columns have defaults in the database, so that processes of the release before go on inserting rows.
"""

from typing import Any

import django.db.models.functions.comparison
from django.conf import settings
from django.db import migrations, models

from helix_sessions.models.guard import lower_guard, raise_guard


def lower_guard_on_sqlite(apps: Any, schema_editor: Any) -> None:
    """SQLite rebuilds the sessions' table, which the triggers of the log look at."""
    if schema_editor.connection.vendor == "sqlite":
        lower_guard(schema_editor.connection)


def raise_guard_on_sqlite(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "sqlite":
        raise_guard(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("helix_sessions", "0026_schedules"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunPython(lower_guard_on_sqlite, raise_guard_on_sqlite),
        migrations.AddField(
            model_name="session",
            name="base_priority",
            field=models.SmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="session",
            name="deferred",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="session",
            name="priority",
            field=models.SmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                models.F("agent_type"),
                models.F("priority"),
                django.db.models.functions.comparison.Coalesce(
                    django.db.models.functions.comparison.Cast("owner", models.TextField()), models.Value("")
                ),
                models.F("runnable_at"),
                models.F("session_id"),
                condition=models.Q(("deferred", False), ("runnable_at__isnull", False)),
                name="helix_session_turn_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("deferred", True), ("runnable_at__isnull", False)),
                fields=["runnable_at"],
                name="helix_session_deferred_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("lease_owner__isnull", False)),
                fields=["agent_type", "session_id"],
                name="helix_session_leased_idx",
            ),
        ),
        migrations.RunPython(raise_guard_on_sqlite, lower_guard_on_sqlite),
    ]
