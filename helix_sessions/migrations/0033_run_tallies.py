import django.db.models.functions.comparison
import django.db.models.lookups
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("helix_sessions", "0032_alerts"),
    ]

    operations = [
        migrations.CreateModel(
            name="RunTally",
            fields=[
                ("slot", models.DateTimeField(primary_key=True, serialize=False)),
                ("ended", models.BigIntegerField()),
                ("failed", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=django.db.models.lookups.GreaterThanOrEqual(
                            django.db.models.functions.comparison.Least("ended", "failed"), 0
                        ),
                        name="helix_run_tally_counts",
                    )
                ],
            },
        ),
    ]
