import django.db.models.functions.comparison
import django.db.models.lookups
from django.db import migrations, models

import helix_sessions.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("helix_sessions", "0029_workers_and_failures"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="session",
            options={
                "permissions": [
                    ("view_all_sessions", "Can see the sessions of every owner"),
                    ("manage_all_sessions", "Can change the sessions of every owner"),
                    ("drive_session", "Can drive their own sessions over HTTP, as a backend does"),
                    ("drive_any_session", "Can drive the sessions of every owner over HTTP"),
                    ("expire_session", "Can expire sessions now"),
                    ("set_expiry_session", "Can set and extend the expiry of sessions"),
                    ("run_session", "Can have sessions run"),
                    ("resume_session", "Can resume paused and interrupted sessions"),
                    ("retry_session", "Can have the failed runs of sessions tried again"),
                    ("change_model_and_retry_session", "Can have sessions tried again with another model"),
                    ("rewind_session", "Can rewind sessions to a checkpoint"),
                    ("replay_session", "Can replay sessions as branches"),
                    ("interrupt_session", "Can interrupt sessions"),
                    ("reactivate_session", "Can make paused and interrupted sessions active again"),
                    ("fail_session", "Can fail sessions"),
                    ("branch_session", "Can branch sessions"),
                    ("suspend_session", "Can suspend sessions"),
                    ("fork_session", "Can fork sessions"),
                    ("clear_session", "Can clear the transcripts of sessions"),
                    ("change_model_session", "Can change the models of sessions"),
                    ("change_budget_session", "Can change the budgets of sessions"),
                    ("compact_session", "Can have sessions summarized for the model"),
                    ("discard_staging_session", "Can discard the staged writes of sessions"),
                    ("export_session", "Can export sessions, secrets included"),
                    ("approve_call_session", "Can approve the tool calls of sessions"),
                    ("deny_call_session", "Can deny the tool calls of sessions"),
                    ("approve_calls_session", "Can approve the waiting calls of many sessions"),
                    ("deny_calls_session", "Can deny the waiting calls of many sessions"),
                    ("answer_call_session", "Can answer the tool calls of sessions"),
                ],
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
            },
        ),
        migrations.CreateModel(
            name="BulkAction",
            fields=[
                (
                    "bulk_id",
                    helix_sessions.models.fields.IdField(max_length=64, primary_key=True, serialize=False),
                ),
                ("action", helix_sessions.models.fields.IdField(max_length=64)),
                ("query", models.TextField()),
                ("answers", helix_sessions.models.fields.DocumentField(default=dict)),
                ("user_key", helix_sessions.models.fields.IdField(max_length=255)),
                ("username", models.CharField(max_length=255)),
                ("state", helix_sessions.models.fields.IdField(default="waiting", max_length=16)),
                ("cursor", helix_sessions.models.fields.IdField(default="", max_length=255)),
                ("expected", models.BigIntegerField(default=0)),
                ("done", models.BigIntegerField(default=0)),
                ("failed", models.BigIntegerField(default=0)),
                ("failures", helix_sessions.models.fields.DocumentField(default=list)),
                ("error", models.TextField(default="")),
                ("claim", helix_sessions.models.fields.IdField(max_length=64, null=True)),
                ("claimed_until", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["-created_at"], name="helix_bulk_newest"),
                    models.Index(
                        condition=models.Q(("state__in", ("waiting", "running", "stopping"))),
                        fields=["created_at"],
                        name="helix_bulk_open_idx",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["waiting", "running", "stopping", "stopped", "done", "failed"])
                        ),
                        name="helix_bulk_state",
                    ),
                    models.CheckConstraint(
                        condition=django.db.models.lookups.GreaterThanOrEqual(
                            django.db.models.functions.comparison.Least("expected", "done", "failed"), 0
                        ),
                        name="helix_bulk_numbers",
                    ),
                ],
            },
        ),
    ]
