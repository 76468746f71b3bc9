"""Which database has the sessions, and the key of a user, who may be in another one: a router decides."""

from typing import Any

from django.apps import apps
from django.db import models, router
from django.db.models.deletion import Collector
from django.db.models.fields.related_descriptors import ForwardManyToOneDescriptor


def sessions_database(named: str | None = None) -> str:
    """The alias that is named, else the one that the project's routers write sessions to.

    Reads go there as well: a replica that lags would show what is over, and a decision on it would be wrong.
    """
    return str(router.db_for_write(apps.get_model("helix_sessions", "Session"))) if named is None else named


def forget_owner(collector: Collector, field: Any, rows: Any, using: str) -> None:
    """The sessions of a user who is deleted stay, without an owner, in whichever database they are."""
    alias = using if router.allow_migrate_model(using, field.model) else sessions_database()
    models.SET_NULL(collector, field, rows.using(alias), using)


def go_with_owner(collector: Collector, field: Any, rows: Any, using: str) -> None:
    """Rows of a user who is deleted go too, if they are in the same database. Others expire, or wait for
    `erase_user`."""
    if router.allow_migrate_model(using, field.model):
        models.CASCADE(collector, field, rows, using)


forget_owner.lazy_sub_objs = go_with_owner.lazy_sub_objs = True  # type: ignore[attr-defined]
"""Django would read the rows before it asks, in the database of the user."""


class _Owner(ForwardManyToOneDescriptor):  # type: ignore[type-arg]
    """Reads users where users are, not where the row that names one is."""

    def get_queryset(self, **hints: Any) -> Any:
        users = self.field.remote_field.model
        return users._base_manager.using(router.db_for_read(users))


class OwnerKey(models.ForeignKey):  # type: ignore[type-arg]
    """A foreign key that the database does not enforce. Migrations know it as the plain one that it is."""

    forward_related_accessor_class = _Owner

    def __init__(self, to: Any, on_delete: Any, **options: Any) -> None:
        super().__init__(to, on_delete, **{"db_constraint": False, "related_name": "+", **options})

    def deconstruct(self) -> tuple[str, str, Any, dict[str, Any]]:
        """As a foreign key of Django."""
        name, _, args, kwargs = super().deconstruct()
        known = {forget_owner: models.SET_NULL, go_with_owner: models.CASCADE}
        kwargs["on_delete"] = known.get(kwargs["on_delete"], kwargs["on_delete"])
        return name, "django.db.models.ForeignKey", args, kwargs
