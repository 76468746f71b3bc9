"""The words of messages, and their full-text index."""

import django.db.models.deletion
from django.db import migrations, models

from helix_sessions.models.transcript_words import create_index_in_migration, drop_index_in_migration


class Migration(migrations.Migration):
    dependencies = [
        ("helix_sessions", "0026_shares_and_schedules"),
    ]

    operations = [
        migrations.CreateModel(
            name="MessageWords",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "session_id", "seq", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("seq", models.BigIntegerField()),
                ("searchable", models.TextField()),
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
        ),
        migrations.RunPython(create_index_in_migration, drop_index_in_migration),
    ]
