"""Views of the session list that operators save."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import helix_sessions.models.fields


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("helix_sessions", "0027_transcript_words"),
    ]

    operations = [
        migrations.CreateModel(
            name="SavedView",
            fields=[
                (
                    "view_id",
                    helix_sessions.models.fields.IdField(max_length=36, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=80, verbose_name="name")),
                ("query", models.TextField(verbose_name="query string")),
                ("created_at", models.DateTimeField(verbose_name="created at")),
                (
                    "owner",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "saved view",
                "verbose_name_plural": "saved views",
                "constraints": [
                    models.UniqueConstraint(fields=("owner", "name"), name="helix_saved_view_name")
                ],
            },
        ),
    ]
