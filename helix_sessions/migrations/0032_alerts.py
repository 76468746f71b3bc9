import django.core.validators
import django.db.models.functions.comparison
import django.db.models.lookups
import django.utils.timezone
from django.db import migrations, models

import helix_sessions.models.alerts
import helix_sessions.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("helix_sessions", "0031_feedback"),
    ]

    operations = [
        migrations.CreateModel(
            name="Alert",
            fields=[
                (
                    "alert_id",
                    helix_sessions.models.fields.IdField(
                        default=helix_sessions.models.alerts.new_alert_id,
                        editable=False,
                        max_length=64,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "name",
                    helix_sessions.models.fields.IdField(max_length=200, unique=True, verbose_name="name"),
                ),
                (
                    "query",
                    models.TextField(
                        help_text="What is after the question mark in the address of the list: status=failed&within=hour",
                        max_length=4000,
                        verbose_name="list",
                    ),
                ),
                (
                    "threshold",
                    models.BigIntegerField(
                        default=1,
                        help_text="It fires when the list has so many sessions, and is over when it has fewer.",
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(10000),
                        ],
                        verbose_name="threshold",
                    ),
                ),
                (
                    "every_seconds",
                    models.BigIntegerField(
                        default=60,
                        validators=[
                            django.core.validators.MinValueValidator(5),
                            django.core.validators.MaxValueValidator(86400),
                        ],
                        verbose_name="seconds between two looks",
                    ),
                ),
                ("enabled", models.BooleanField(default=True, verbose_name="enabled")),
                ("is_firing", models.BooleanField(default=False, editable=False, verbose_name="firing")),
                ("count", models.BigIntegerField(editable=False, null=True, verbose_name="sessions")),
                ("error", models.TextField(default="", editable=False, verbose_name="error")),
                ("checked_at", models.DateTimeField(editable=False, null=True, verbose_name="looked at")),
                ("changed_at", models.DateTimeField(editable=False, null=True, verbose_name="since")),
                ("next_check_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                "verbose_name": "alert",
                "verbose_name_plural": "alerts",
                "indexes": [
                    models.Index(
                        condition=models.Q(("enabled", True)),
                        fields=["next_check_at"],
                        name="helix_alert_due_idx",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=django.db.models.lookups.GreaterThanOrEqual(
                            django.db.models.functions.comparison.Least("threshold", "every_seconds"), 1
                        ),
                        name="helix_alert_numbers",
                    )
                ],
            },
        ),
    ]
