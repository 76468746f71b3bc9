import django.db.models.functions.comparison
import django.db.models.lookups
from django.conf import settings
from django.db import migrations, models

import helix_sessions.models.fields
from helix_sessions.migrations._online import DeclareIndex


class Migration(migrations.Migration):
    dependencies = [
        ("helix_sessions", "0028_saved_views"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Worker",
            fields=[
                (
                    "owner",
                    helix_sessions.models.fields.IdField(max_length=255, primary_key=True, serialize=False),
                ),
                ("host", models.CharField(default="", max_length=255)),
                ("pid", models.BigIntegerField(default=0)),
                ("concurrency", models.BigIntegerField(default=1)),
                ("agents", helix_sessions.models.fields.DocumentField(default=list)),
                ("driven", models.BigIntegerField(default=0)),
                ("failed", models.BigIntegerField(default=0)),
                ("started_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
            ],
        ),
        DeclareIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", False)),
                fields=["ended_at", "status"],
                name="helix_run_ended_idx",
            ),
        ),
        DeclareIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("status", "failed")),
                fields=["status_since", "error_fingerprint", "agent_type"],
                name="helix_session_failures_idx",
            ),
        ),
        migrations.AddConstraint(
            model_name="worker",
            constraint=models.CheckConstraint(
                condition=django.db.models.lookups.GreaterThanOrEqual(
                    django.db.models.functions.comparison.Least("pid", "concurrency", "driven", "failed"), 0
                ),
                name="helix_worker_numbers",
            ),
        ),
    ]
