"""Calls that wait for a client: whose they are, when they expire, and which calls of a transcript are open."""

import django.db.models.deletion
from django.db import migrations, models

import helix_sessions.models.fields


class Migration(migrations.Migration):
    dependencies = [("helix_sessions", "0004_idempotency")]

    operations = [
        migrations.CreateModel(
            name="ClientCall",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "session_id",
                        "tool_call_id",
                        "owner_session_id",
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
                ("tool_call_id", helix_sessions.models.fields.IdField(max_length=256)),
                ("owner_session_id", helix_sessions.models.fields.IdField(max_length=255)),
                ("requested_at", models.DateTimeField()),
                ("completed_at", models.DateTimeField(null=True)),
                ("expired", models.BooleanField(default=False)),
                ("late_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.AddField(
            model_name="session",
            name="next_deadline",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="session",
            name="open_calls",
            field=helix_sessions.models.fields.DocumentField(null=True),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("next_deadline__isnull", False)),
                fields=["next_deadline", "session_id"],
                name="helix_session_deadline_idx",
            ),
        ),
    ]
