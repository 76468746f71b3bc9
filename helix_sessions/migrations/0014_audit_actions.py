from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("helix_sessions", "0013_audit"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(fields=["action", "-at"], name="helix_audit_action_idx"),
        ),
    ]
