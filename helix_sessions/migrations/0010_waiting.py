"""Since when sessions wait, with an index; permissions to answer for those they wait for."""

from typing import Any

from django.db import migrations, models

from helix_sessions.models.guard import lower_guard, raise_guard

ENDED = ("completed", "failed")


def note_waiting(apps: Any, schema_editor: Any) -> None:
    """Sessions that wait already: since when is not known, but not before their last change."""
    sessions = apps.get_model("helix_sessions", "Session").objects.using(schema_editor.connection.alias)
    found = sessions.exclude(suspended_awaiting_children=None).only("suspended_awaiting_children")
    awaiting = [row.pk for row in found.iterator() if _unsettled(row.suspended_awaiting_children)]
    for start in range(0, len(awaiting), 500):
        sessions.filter(pk__in=awaiting[start : start + 500]).update(awaiting_children=True)
    waiting = sessions.filter(models.Q(awaiting_client=True) | models.Q(awaiting_children=True))
    waiting.exclude(status__in=ENDED).update(waiting_since=models.F("updated_at"))


def _unsettled(waits: Any) -> bool:
    return any(not isinstance(wait, dict) or wait.get("status") not in ENDED for wait in waits.values())


def lower_guard_on_sqlite(apps: Any, schema_editor: Any) -> None:
    """SQLite rebuilds the sessions' table, which the triggers of the log look at."""
    if schema_editor.connection.vendor == "sqlite":
        lower_guard(schema_editor.connection)


def raise_guard_on_sqlite(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "sqlite":
        raise_guard(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("helix_sessions", "0009_inbox")]

    operations = [
        migrations.RunPython(lower_guard_on_sqlite, raise_guard_on_sqlite),
        migrations.AddField(
            model_name="session", name="awaiting_children", field=models.BooleanField(default=False)
        ),
        migrations.AddField(
            model_name="session", name="waiting_since", field=models.DateTimeField(null=True)
        ),
        migrations.RunPython(note_waiting, migrations.RunPython.noop, elidable=True),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("waiting_since__isnull", False)),
                fields=["waiting_since", "session_id"],
                name="helix_session_waiting_idx",
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
                    ("interrupt_session", "Can interrupt sessions"),
                    ("reactivate_session", "Can make paused and interrupted sessions active again"),
                    ("fail_session", "Can fail sessions"),
                    ("branch_session", "Can branch sessions"),
                    ("suspend_session", "Can suspend sessions"),
                    ("fork_session", "Can fork sessions"),
                    ("clear_session", "Can clear the transcripts of sessions"),
                    ("change_model_session", "Can change the models of sessions"),
                    ("change_budget_session", "Can change the budgets of sessions"),
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
