"""Archived ranges of the log, the record behind an idempotency key, and an index of what has expired."""

import django.db.models.deletion
from django.db import migrations, models

import helix_sessions.models.fields


class Migration(migrations.Migration):
    dependencies = [("helix_sessions", "0005_suspension")]

    operations = [
        migrations.CreateModel(
            name="ArchivedRange",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "session_id",
                        "first_seq",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("first_seq", models.BigIntegerField()),
                ("last_seq", models.BigIntegerField()),
                ("storage", helix_sessions.models.fields.IdField(max_length=255)),
                ("name", models.CharField(max_length=1024)),
                ("created_at", models.DateTimeField()),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="helix_sessions.session",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["name"], name="helix_archive_name_idx")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("first_seq__gte", 1), ("last_seq__gte", models.F("first_seq"))),
                        name="helix_archive_range",
                    )
                ],
            },
        ),
        migrations.AddField(
            model_name="eventkey",
            name="record",
            field=helix_sessions.models.fields.DocumentField(null=True),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(
                    ("expires_at__isnull", False), ("status__in", ("active", "interrupted", "paused"))
                ),
                fields=["expires_at", "session_id"],
                name="helix_session_overdue_idx",
            ),
        ),
    ]
