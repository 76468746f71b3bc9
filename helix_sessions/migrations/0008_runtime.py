"""Agents of the runtime, and the status of a session that was deleted by decision."""

from typing import Any

import django.db.models.deletion
import django.db.models.lookups
from django.db import migrations, models

import helix_sessions.models.fields
from helix_sessions.models import guard

_WAS_UP = "_helix_sessions_guard_was_up"


def lower_guard(apps: Any, schema_editor: Any) -> None:
    """SQLite rebuilds a table to change a constraint, which triggers that name the table do not survive."""
    connection = schema_editor.connection
    if connection.vendor == "sqlite":
        setattr(connection, _WAS_UP, guard.is_guarded(connection))
        guard.lower_guard(connection)


def raise_guard(apps: Any, schema_editor: Any) -> None:
    if vars(schema_editor.connection).pop(_WAS_UP, False):
        guard.raise_guard(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("helix_sessions", "0007_admin"),
    ]

    operations = [
        migrations.CreateModel(
            name="AgentRecord",
            fields=[
                (
                    "session",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="helix_sessions.session",
                    ),
                ),
                ("label", helix_sessions.models.fields.IdField(max_length=255, null=True)),
                ("definition", helix_sessions.models.fields.DocumentField()),
                ("system_prompt", helix_sessions.models.fields.DocumentField()),
                ("model", helix_sessions.models.fields.DocumentField(null=True)),
                ("budget", helix_sessions.models.fields.DocumentField(null=True)),
                ("execution_count", models.BigIntegerField(default=0)),
                ("execution", helix_sessions.models.fields.DocumentField(null=True)),
            ],
        ),
        migrations.RunPython(lower_guard, raise_guard),
        migrations.RemoveConstraint(
            model_name="session",
            name="helix_session_status",
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("status__in", ["active", "completed", "failed", "interrupted", "paused", "deleted"])
                ),
                name="helix_session_status",
            ),
        ),
        migrations.RunPython(raise_guard, lower_guard),
        migrations.AddConstraint(
            model_name="agentrecord",
            constraint=models.CheckConstraint(
                condition=django.db.models.lookups.GreaterThanOrEqual(models.F("execution_count"), 0),
                name="helix_agent_executions",
            ),
        ),
        migrations.AlterModelOptions(
            name="session",
            options={
                "permissions": [
                    ("view_all_sessions", "Can see the sessions of every owner"),
                    ("manage_all_sessions", "Can change the sessions of every owner"),
                    ("expire_session", "Can expire sessions now"),
                    ("set_expiry_session", "Can set and extend the expiry of sessions"),
                    ("interrupt_session", "Can interrupt sessions"),
                    ("reactivate_session", "Can make paused and interrupted sessions active again"),
                    ("fail_session", "Can fail sessions"),
                    ("branch_session", "Can branch sessions"),
                    ("suspend_session", "Can suspend sessions"),
                    ("fork_session", "Can fork sessions"),
                    ("clear_session", "Can clear the transcripts of sessions"),
                    ("change_model_session", "Can change the models of sessions"),
                    ("change_budget_session", "Can change the budgets of sessions"),
                    ("discard_staging_session", "Can discard the staged writes of sessions"),
                    ("export_session", "Can export sessions, secrets included"),
                ],
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
            },
        ),
    ]
