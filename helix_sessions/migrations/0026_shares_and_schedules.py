"""Owners in turn, priorities, what runs at once; and schedules with their firings.

The columns have defaults in the database, so that processes of the release before go on inserting rows.
"""

from typing import Any

import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.lookups
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import helix_sessions.models.fields
import helix_sessions.models.schedules
from helix_sessions.migrations._online import DeclareIndex, WaitBriefly
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
        ("helix_sessions", "0025_spend"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        WaitBriefly(),
        migrations.RunPython(lower_guard_on_sqlite, raise_guard_on_sqlite),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                (
                    "schedule_id",
                    helix_sessions.models.fields.IdField(
                        default=helix_sessions.models.schedules.new_schedule_id,
                        editable=False,
                        max_length=64,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=200, verbose_name="name")),
                (
                    "cron",
                    helix_sessions.models.schedules.CronField(
                        help_text="Minute, hour, day of month, month, day of week.",
                        max_length=100,
                        verbose_name="cron",
                    ),
                ),
                (
                    "timezone",
                    models.CharField(
                        default=helix_sessions.models.schedules.project_zone,
                        max_length=64,
                        verbose_name="time zone",
                    ),
                ),
                (
                    "agent_type",
                    helix_sessions.models.fields.IdField(max_length=255, verbose_name="agent type"),
                ),
                ("prompt", helix_sessions.models.fields.SecretField(verbose_name="prompt")),
                (
                    "session",
                    helix_sessions.models.fields.IdField(
                        choices=[("new", "new"), ("keep", "keep")],
                        default="new",
                        max_length=8,
                        verbose_name="session",
                    ),
                ),
                (
                    "overlap",
                    helix_sessions.models.fields.IdField(
                        choices=[("skip", "skip"), ("queue", "queue")],
                        default="skip",
                        max_length=8,
                        verbose_name="overlap",
                    ),
                ),
                (
                    "catch_up",
                    models.IntegerField(
                        default=1, help_text="How many missed firings are made good.", verbose_name="catch up"
                    ),
                ),
                ("priority", models.IntegerField(default=0, verbose_name="priority")),
                ("enabled", models.BooleanField(default=True, verbose_name="enabled")),
                (
                    "created_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, editable=False, verbose_name="created at"
                    ),
                ),
                (
                    "next_at",
                    helix_sessions.models.schedules.NextFiringField(
                        editable=False, null=True, verbose_name="next firing"
                    ),
                ),
                ("planned", models.CharField(default="", editable=False, max_length=174)),
                (
                    "last_firing_at",
                    models.DateTimeField(editable=False, null=True, verbose_name="last firing"),
                ),
                ("last_error", models.TextField(editable=False, null=True, verbose_name="last error")),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
            },
        ),
        migrations.CreateModel(
            name="ScheduleFiring",
            fields=[
                ("firing_id", models.BigAutoField(primary_key=True, serialize=False)),
                ("firing_at", models.DateTimeField(verbose_name="time")),
                ("made_at", models.DateTimeField(verbose_name="made at")),
                ("state", helix_sessions.models.fields.IdField(max_length=8, verbose_name="state")),
                (
                    "session_id",
                    helix_sessions.models.fields.IdField(max_length=255, null=True, verbose_name="session"),
                ),
                (
                    "input_id",
                    helix_sessions.models.fields.IdField(max_length=255, null=True, verbose_name="input"),
                ),
                ("error", models.TextField(null=True, verbose_name="error")),
            ],
            options={
                "verbose_name": "schedule firing",
                "verbose_name_plural": "schedule firings",
            },
        ),
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
        DeclareIndex(
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
        DeclareIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("deferred", True), ("runnable_at__isnull", False)),
                fields=["runnable_at"],
                name="helix_session_deferred_idx",
            ),
        ),
        DeclareIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("lease_owner__isnull", False)),
                fields=["agent_type", "session_id"],
                name="helix_session_leased_idx",
            ),
        ),
        migrations.AddField(
            model_name="schedule",
            name="owner",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
                verbose_name="owner",
            ),
        ),
        migrations.AddField(
            model_name="schedulefiring",
            name="schedule",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="firings",
                to="helix_sessions.schedule",
                verbose_name="schedule",
            ),
        ),
        migrations.AddIndex(
            model_name="schedule",
            index=models.Index(fields=["next_at"], name="helix_schedule_due_idx"),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("session__in", ["new", "keep"])), name="helix_schedule_session"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("overlap__in", ["skip", "queue"])), name="helix_schedule_overlap"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=django.db.models.lookups.GreaterThanOrEqual(models.F("catch_up"), 0),
                name="helix_schedule_numbers",
            ),
        ),
        migrations.AddIndex(
            model_name="schedulefiring",
            index=models.Index(
                condition=models.Q(("state", "queued")),
                fields=["schedule", "firing_id"],
                name="helix_firing_queue_idx",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedulefiring",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["fired", "queued", "skipped", "failed"])),
                name="helix_firing_state",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedulefiring",
            constraint=models.UniqueConstraint(fields=("schedule", "firing_at"), name="helix_firing_once"),
        ),
        migrations.RunPython(raise_guard_on_sqlite, lower_guard_on_sqlite),
    ]
