"""The inbox with its claims on input ids, and who drives a session."""

from typing import Any

import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.lookups
from django.db import migrations, models

import helix_sessions.models.fields
from helix_sessions.models.guard import lower_guard, raise_guard


def lower_guard_on_sqlite(apps: Any, schema_editor: Any) -> None:
    """SQLite rebuilds the sessions' table, which the triggers of the log look at."""
    if schema_editor.connection.vendor == "sqlite":
        lower_guard(schema_editor.connection)


def raise_guard_on_sqlite(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "sqlite":
        raise_guard(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("helix_sessions", "0008_runtime")]

    operations = [
        migrations.RunPython(lower_guard_on_sqlite, raise_guard_on_sqlite),
        migrations.RemoveConstraint(model_name="session", name="helix_session_counters"),
        migrations.AddField(model_name="session", name="fence", field=models.BigIntegerField(default=0)),
        migrations.AddField(
            model_name="session", name="lease_expires_at", field=models.DateTimeField(null=True)
        ),
        migrations.AddField(
            model_name="session",
            name="lease_owner",
            field=helix_sessions.models.fields.IdField(max_length=255, null=True),
        ),
        migrations.AddField(
            model_name="session", name="pending_inputs", field=models.BigIntegerField(default=0)
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=django.db.models.lookups.GreaterThanOrEqual(
                    django.db.models.functions.comparison.Least(
                        "head_seq",
                        "message_count",
                        "step_count",
                        "resume_count",
                        "turn_count",
                        "staged_count",
                        "pending_inputs",
                        "fence",
                        "state_number",
                        "state_base",
                        "state_pinned",
                        "state_size",
                        "state_delta",
                    ),
                    0,
                ),
                name="helix_session_counters",
            ),
        ),
        migrations.CreateModel(
            name="Input",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "session_id",
                        "input_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="helix_sessions.session",
                    ),
                ),
                ("input_id", helix_sessions.models.fields.IdField(max_length=255)),
                ("prompt", helix_sessions.models.fields.DocumentField()),
                ("delivery", helix_sessions.models.fields.IdField(max_length=16)),
                ("admitted_delivery", helix_sessions.models.fields.IdField(max_length=16)),
                ("admitted_seq", models.BigIntegerField()),
                ("promoted_seq", models.BigIntegerField(null=True)),
                ("cancelled_seq", models.BigIntegerField(null=True)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("delivery__in", ["steer", "queue"])), name="helix_input_delivery"
                    ),
                    models.CheckConstraint(
                        condition=django.db.models.lookups.GreaterThanOrEqual(models.F("admitted_seq"), 0),
                        name="helix_input_seq",
                    ),
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("cancelled_seq__isnull", True), ("promoted_seq__isnull", True)),
                        fields=["session", "admitted_seq"],
                        name="helix_input_pending_idx",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="InputClaim",
            fields=[
                (
                    "input_id",
                    helix_sessions.models.fields.IdField(max_length=255, primary_key=True, serialize=False),
                ),
                ("session_id", helix_sessions.models.fields.IdField(max_length=255)),
            ],
        ),
        migrations.RunPython(raise_guard_on_sqlite, lower_guard_on_sqlite),
    ]
