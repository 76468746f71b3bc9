"""What the model sees: epochs, updates, compactions; and instructions that operators write."""

import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.lookups
from django.db import migrations, models

import helix_sessions.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("helix_sessions", "0011_notes"),
    ]

    operations = [
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
        migrations.CreateModel(
            name="InstructionsRevision",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "agent_type", "number", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("agent_type", helix_sessions.models.fields.IdField(max_length=255)),
                ("number", models.BigIntegerField()),
                ("text", models.TextField(null=True)),
                ("created_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="ContextEpoch",
            fields=[
                (
                    "session",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="helix_sessions.session",
                    ),
                ),
                ("baseline", helix_sessions.models.fields.DocumentField()),
                ("snapshot", helix_sessions.models.fields.DocumentField()),
                ("baseline_seq", models.BigIntegerField()),
                ("baseline_position", models.BigIntegerField()),
                ("compaction_number", models.BigIntegerField(default=0)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=django.db.models.lookups.GreaterThanOrEqual(
                            django.db.models.functions.comparison.Least(
                                "baseline_seq", "baseline_position", "compaction_number"
                            ),
                            0,
                        ),
                        name="helix_epoch_numbers",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Instructions",
            fields=[
                (
                    "agent_type",
                    helix_sessions.models.fields.IdField(
                        max_length=255, primary_key=True, serialize=False, verbose_name="agent type"
                    ),
                ),
                ("text", models.TextField(verbose_name="text")),
                ("number", models.BigIntegerField(verbose_name="revision")),
                ("updated_at", models.DateTimeField(verbose_name="updated at")),
            ],
            options={
                "verbose_name": "instructions",
                "verbose_name_plural": "instructions",
                "constraints": [
                    models.CheckConstraint(
                        condition=django.db.models.lookups.GreaterThanOrEqual(models.F("number"), 1),
                        name="helix_instructions_number",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Compaction",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "session_id", "number", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("number", models.BigIntegerField()),
                ("started_seq", models.BigIntegerField()),
                ("started_at", models.DateTimeField()),
                ("holder", helix_sessions.models.fields.IdField(max_length=255, null=True)),
                ("fence", models.BigIntegerField(default=0)),
                ("reason", helix_sessions.models.fields.IdField(max_length=255)),
                ("from_seq", models.BigIntegerField()),
                ("to_seq", models.BigIntegerField()),
                ("from_position", models.BigIntegerField()),
                ("kept_position", models.BigIntegerField()),
                ("end_position", models.BigIntegerField()),
                ("compacted_seq", models.BigIntegerField(null=True)),
                ("compacted_at", models.DateTimeField(null=True)),
                ("summary", helix_sessions.models.fields.DocumentField(null=True)),
                ("content", helix_sessions.models.fields.DocumentField(null=True)),
                ("truncated_seq", models.BigIntegerField(null=True)),
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
                "constraints": [
                    models.CheckConstraint(
                        condition=django.db.models.lookups.GreaterThanOrEqual(models.F("number"), 1),
                        name="helix_compaction_number",
                    ),
                    models.CheckConstraint(
                        condition=django.db.models.lookups.GreaterThanOrEqual(
                            django.db.models.functions.comparison.Least(
                                "from_position", "kept_position", "end_position"
                            ),
                            0,
                        ),
                        name="helix_compaction_range",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ContextUpdate",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "session_id", "seq", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("seq", models.BigIntegerField()),
                ("position", models.BigIntegerField()),
                ("before", helix_sessions.models.fields.DocumentField(null=True)),
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
                "constraints": [
                    models.CheckConstraint(
                        condition=django.db.models.lookups.GreaterThanOrEqual(
                            django.db.models.functions.comparison.Least("seq", "position"), 0
                        ),
                        name="helix_context_update_numbers",
                    )
                ],
            },
        ),
    ]
