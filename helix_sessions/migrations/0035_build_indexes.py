"""Builds what earlier migrations declared on tables that are in use. Repeat it if it was interrupted."""

from django.db import migrations

from helix_sessions.migrations._online import BuildDeclared


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("helix_sessions", "0034_moves")]

    operations = [
        BuildDeclared(
            indexes={
                "event": ("helix_event_turn_idx",),
                "run": ("helix_run_error_idx", "helix_run_ended_idx"),
                "session": (
                    "helix_session_runnable_idx",
                    "helix_session_error_idx",
                    "helix_session_turn_idx",
                    "helix_session_deferred_idx",
                    "helix_session_leased_idx",
                    "helix_session_failures_idx",
                ),
            },
            checks={"session": ("helix_session_counters",)},
        ),
    ]
