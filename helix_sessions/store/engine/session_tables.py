"""Which tables hold what belongs to a session: all whose primary key begins with it."""

from functools import cache

from django.apps import apps
from django.db import models

from helix_sessions.models import FragmentBatch, MessageWords, Session
from helix_sessions.models.fields import key_of


@cache
def child_tables() -> tuple[type[models.Model], ...]:
    """The tables of a session beside its own, by name; a new one needs no mention here."""
    found = apps.get_app_config("helix_sessions").get_models()
    return tuple(
        sorted(
            (model for model in found if model is not Session and key_of(model)[0] == "session_id"),
            key=lambda model: str(model._meta.model_name),
        )
    )


def every_table() -> tuple[type[models.Model], ...]:
    """The sessions' own table, then those of what belongs to them."""
    return (Session, *child_tables())


def exported_tables() -> tuple[type[models.Model], ...]:
    """Those whose rows go with a session to another installation: not what a process is saying here, nor the
    words of messages."""
    return tuple(model for model in every_table() if model not in (FragmentBatch, MessageWords))


def kind_of(model: type[models.Model]) -> str:
    """What a table's row is called in an export: `staged_change` for `StagedChange`."""
    name = model.__name__
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
