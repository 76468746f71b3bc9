"""Input ids are unique among the sessions of one owner, no longer in the whole database.

The claims move to a table of the same name with the owner in its key. Receipts are rows of `Input`, which stay.
A process of the version before claims ids for sessions without an owner until it is replaced.
"""

from collections.abc import Iterator
from typing import Any

from django.db import migrations, models

import helix_sessions.models.fields

_BATCH = 5_000


def claim_for_owners(apps: Any, schema_editor: Any) -> None:
    using = schema_editor.connection.alias
    former, claims, sessions = _models(apps, "FormerInputClaim", "InputClaim", "Session")
    for rows in _pages(former.objects.using(using)):
        keys = {session_id for _, session_id in rows}
        found = sessions.objects.using(using).filter(session_id__in=keys).exclude(owner_id=None)
        owners = {key: str(owner) for key, owner in found.values_list("session_id", "owner_id")}
        claims.objects.using(using).bulk_create(
            claims(input_id=input_id, owner_key=owners.get(session_id, ""), session_id=session_id)
            for input_id, session_id in rows
        )


def claim_for_all(apps: Any, schema_editor: Any) -> None:
    """The way back: of several sessions with the same input id, one keeps it."""
    using = schema_editor.connection.alias
    former, claims = _models(apps, "FormerInputClaim", "InputClaim")
    rows = claims.objects.using(using).order_by("input_id").values_list("input_id", "session_id")
    former.objects.using(using).bulk_create(
        (former(input_id=input_id, session_id=session_id) for input_id, session_id in rows.iterator()),
        batch_size=_BATCH,
        ignore_conflicts=True,
    )


def _pages(rows: Any) -> Iterator[list[tuple[str, str]]]:
    last = ""
    while page := list(
        rows.filter(input_id__gt=last).order_by("input_id").values_list("input_id", "session_id")[:_BATCH]
    ):
        yield page
        last = page[-1][0]


def _models(apps: Any, *names: str) -> list[Any]:
    return [apps.get_model("helix_sessions", name) for name in names]


class Migration(migrations.Migration):
    dependencies = [("helix_sessions", "0021_webhooks")]

    operations = [
        migrations.RenameModel("InputClaim", "FormerInputClaim"),
        migrations.CreateModel(
            name="InputClaim",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "input_id",
                        "owner_key",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("input_id", helix_sessions.models.fields.IdField(max_length=255)),
                ("owner_key", helix_sessions.models.fields.IdField(db_default="", max_length=255)),
                ("session_id", helix_sessions.models.fields.IdField(max_length=255)),
            ],
        ),
        migrations.RunPython(claim_for_owners, claim_for_all),
        migrations.DeleteModel("FormerInputClaim"),
    ]
