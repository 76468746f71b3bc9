"""What tells one write of a session's row from all others, and one lease. Columns that may be null, so that no row
is rewritten."""

from django.db import migrations, models

import helix_sessions.models.fields


class Migration(migrations.Migration):
    dependencies = [("helix_sessions", "0015_notes_room")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="write_mark",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="session",
            name="lease_token",
            field=helix_sessions.models.fields.IdField(max_length=32, null=True),
        ),
    ]
