import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.lookups
from django.db import migrations, models

import helix_sessions.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("helix_sessions", "0030_bulk_actions"),
    ]

    operations = [
        migrations.CreateModel(
            name="Feedback",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "session_id",
                        "message_seq",
                        "author",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("message_seq", models.BigIntegerField()),
                ("author", helix_sessions.models.fields.IdField(default="", max_length=255)),
                ("position", models.BigIntegerField()),
                ("rating", helix_sessions.models.fields.IdField(max_length=8)),
                ("comment", helix_sessions.models.fields.DocumentField(null=True)),
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
                "indexes": [models.Index(fields=["rating", "session"], name="helix_feedback_rating_idx")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("rating__in", ["up", "down"])), name="helix_feedback_rating"
                    ),
                    models.CheckConstraint(
                        condition=django.db.models.lookups.GreaterThanOrEqual(
                            django.db.models.functions.comparison.Least("position", "message_seq"), 0
                        ),
                        name="helix_feedback_position",
                    ),
                ],
            },
        ),
    ]
