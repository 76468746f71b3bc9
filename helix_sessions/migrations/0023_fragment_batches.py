import django.db.models.deletion
import django.db.models.functions.comparison
import django.db.models.lookups
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

import helix_sessions.models.fields


def leave_out_of_the_write_ahead_log(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """What is lost with a crash of the server is what the process would lose that says it."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute('ALTER TABLE "helix_sessions_fragmentbatch" SET UNLOGGED')


class Migration(migrations.Migration):
    dependencies = [
        ("helix_sessions", "0022_input_claims_per_owner"),
    ]

    operations = [
        migrations.CreateModel(
            name="FragmentBatch",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "session_id",
                        "message_id",
                        "first_index",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("message_id", helix_sessions.models.fields.IdField(max_length=64)),
                ("first_index", models.BigIntegerField()),
                ("run_id", helix_sessions.models.fields.IdField(max_length=255)),
                ("turn_id", helix_sessions.models.fields.IdField(max_length=255)),
                ("after_seq", models.BigIntegerField()),
                ("fragments", helix_sessions.models.fields.DocumentField()),
                ("kept_at", models.DateTimeField()),
                (
                    "session",
                    models.ForeignKey(
                        db_constraint=False,
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
                            django.db.models.functions.comparison.Least("first_index", "after_seq"), 0
                        ),
                        name="helix_fragment_batch_numbers",
                    )
                ],
            },
        ),
        migrations.RunPython(leave_out_of_the_write_ahead_log, migrations.RunPython.noop),
    ]
