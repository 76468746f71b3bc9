"""Memories across sessions, their vectors and their full-text index."""

from django.db import migrations, models

import helix_sessions.models.fields
from helix_sessions.models.memory_words import create_words_in_migration, drop_words_in_migration


class Migration(migrations.Migration):
    dependencies = [
        ("helix_sessions", "0019_tool_rules"),
    ]

    operations = [
        migrations.CreateModel(
            name="MemoryVector",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "memory_id", "number", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("memory_id", helix_sessions.models.fields.IdField(max_length=32)),
                ("number", models.BigIntegerField()),
                ("vector", helix_sessions.models.fields.VectorField(null=True)),
                ("sealed", models.TextField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Memory",
            fields=[
                (
                    "memory_id",
                    helix_sessions.models.fields.IdField(max_length=32, primary_key=True, serialize=False),
                ),
                (
                    "namespace",
                    helix_sessions.models.fields.IdField(max_length=1500, verbose_name="namespace"),
                ),
                ("key", helix_sessions.models.fields.IdField(max_length=255, verbose_name="key")),
                ("value", helix_sessions.models.fields.DocumentField(verbose_name="value")),
                ("searchable", models.TextField(default="")),
                ("dims", models.BigIntegerField(default=0)),
                ("ttl", models.FloatField(null=True)),
                ("created_at", models.DateTimeField(verbose_name="created at")),
                ("updated_at", models.DateTimeField(verbose_name="updated at")),
                ("expires_at", models.DateTimeField(null=True, verbose_name="expires at")),
            ],
            options={
                "verbose_name": "memory",
                "verbose_name_plural": "memories",
                "indexes": [
                    models.Index(fields=["namespace"], name="helix_memory_namespace_idx"),
                    models.Index(fields=["updated_at"], name="helix_memory_updated_idx"),
                    models.Index(
                        condition=models.Q(("expires_at__isnull", False)),
                        fields=["expires_at"],
                        name="helix_memory_expiry_idx",
                    ),
                ],
            },
        ),
        migrations.RunPython(create_words_in_migration, drop_words_in_migration),
    ]
