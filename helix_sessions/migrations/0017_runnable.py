"""When a session wants to run, one fact with one index; the agent's last sign; errors by cause; usage.

The columns have defaults in the database, so that processes of the release before go on inserting rows.
"""

from typing import Any

import django.db.models.functions.comparison
import django.db.models.lookups
from django.db import migrations, models
from django.utils import timezone

import helix_sessions.models.fields
from helix_sessions.migrations._online import DeclareCheck, DeclareIndex, WaitBriefly
from helix_sessions.models.guard import lower_guard, raise_guard

AT_ONCE = 500


def note_runnable(apps: Any, schema_editor: Any) -> None:
    """What is to be done already: runs under way, prompts that wait, suspended sessions with every answer."""
    sessions = apps.get_model("helix_sessions", "Session").objects.using(schema_editor.connection.alias)
    now = timezone.now()
    running = sessions.filter(run_id__isnull=False)
    running.update(runnable_at=models.functions.Coalesce("lease_expires_at", models.Value(now)))
    running.update(last_agent_activity_at=models.F("updated_at"))
    idle = sessions.filter(run_id__isnull=True, awaiting_client=False, awaiting_children=False)
    idle.filter(status__in=("active", "completed"), pending_inputs__gt=0).update(runnable_at=now)
    suspended = idle.filter(status="active", runnable_at__isnull=True).exclude(
        pending_client_tool_calls=None, suspended_awaiting_children=None
    )
    names = ("pending_client_tool_calls", "suspended_awaiting_children")
    answered = [row.pk for row in suspended.only(*names).iterator() if any(getattr(row, n) for n in names)]
    for start in range(0, len(answered), AT_ONCE):
        sessions.filter(pk__in=answered[start : start + AT_ONCE]).update(runnable_at=now)


def lower_guard_on_sqlite(apps: Any, schema_editor: Any) -> None:
    """SQLite rebuilds the sessions' table, which the triggers of the log look at."""
    if schema_editor.connection.vendor == "sqlite":
        lower_guard(schema_editor.connection)


def raise_guard_on_sqlite(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "sqlite":
        raise_guard(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("helix_sessions", "0016_write_marks_and_lease_tokens")]

    operations = [
        WaitBriefly(),
        migrations.RunPython(lower_guard_on_sqlite, raise_guard_on_sqlite),
        migrations.RemoveConstraint(model_name="session", name="helix_session_counters"),
        migrations.AddField(
            model_name="run",
            name="error_fingerprint",
            field=helix_sessions.models.fields.IdField(max_length=32, null=True),
        ),
        migrations.AddField(
            model_name="session", name="attempts", field=models.BigIntegerField(db_default=0, default=0)
        ),
        migrations.AddField(
            model_name="session",
            name="error_fingerprint",
            field=helix_sessions.models.fields.IdField(max_length=32, null=True),
        ),
        migrations.AddField(
            model_name="session", name="last_agent_activity_at", field=models.DateTimeField(null=True)
        ),
        migrations.AddField(
            model_name="session", name="retry_attempt", field=models.BigIntegerField(db_default=0, default=0)
        ),
        migrations.AddField(
            model_name="session",
            name="run_requested",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="session", name="run_requested_at", field=models.DateTimeField(null=True)
        ),
        migrations.AddField(model_name="session", name="runnable_at", field=models.DateTimeField(null=True)),
        migrations.AddField(
            model_name="session",
            name="usage",
            field=helix_sessions.models.fields.DocumentField(null=True),
        ),
        migrations.RunPython(note_runnable, migrations.RunPython.noop, elidable=True),
        DeclareIndex(
            model_name="event",
            index=models.Index(
                condition=models.Q(("turn_id__isnull", False)),
                fields=["session", "turn_id", "seq"],
                name="helix_event_turn_idx",
            ),
        ),
        DeclareIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("error_fingerprint__isnull", False)),
                fields=["error_fingerprint", "session"],
                name="helix_run_error_idx",
            ),
        ),
        DeclareIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("runnable_at__isnull", False)),
                fields=["agent_type", "runnable_at", "session_id"],
                name="helix_session_runnable_idx",
            ),
        ),
        DeclareIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("error_fingerprint__isnull", False)),
                fields=["error_fingerprint", "session_id"],
                name="helix_session_error_idx",
            ),
        ),
        DeclareCheck(
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
                        "attempts",
                        "retry_attempt",
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
        migrations.AlterModelOptions(
            name="session",
            options={
                "permissions": [
                    ("view_all_sessions", "Can see the sessions of every owner"),
                    ("manage_all_sessions", "Can change the sessions of every owner"),
                    ("expire_session", "Can expire sessions now"),
                    ("set_expiry_session", "Can set and extend the expiry of sessions"),
                    ("run_session", "Can have sessions run"),
                    ("resume_session", "Can resume paused and interrupted sessions"),
                    ("retry_session", "Can have the failed runs of sessions tried again"),
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
                    ("answer_call_session", "Can answer the tool calls of sessions"),
                ],
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
            },
        ),
        migrations.RunPython(raise_guard_on_sqlite, lower_guard_on_sqlite),
    ]
