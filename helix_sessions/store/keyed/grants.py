"""The permissions of a user, as the tables of `django.contrib.auth` have them."""

from typing import Any, NamedTuple

from django.contrib.auth.models import Group, Permission
from django.db import connections, router

from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.keyed import sql


class Grants(NamedTuple):
    """Permissions by their names, such as `helix_sessions.drive_session`."""

    of_user: set[str]
    of_groups: set[str]


def are_here(using: str, user: Any) -> bool:
    """Whether this database has the permissions of the user, and as Django's models have them."""
    related = [user._meta.get_field(name).related_model for name in ("user_permissions", "groups")]
    read = {router.db_for_read(Permission, instance=user), router.db_for_read(Permission)}
    return related == [Permission, Group] and read == {using}


def read(using: str, user: Any) -> Grants:
    """Read them in one statement, as they are now."""
    connection = connections[using]
    key = user._meta.pk.get_db_prep_value(user.pk, connection)
    params = dialect_of(connection).parameters([key, key])
    grants = Grants(set(), set())
    for source, app, name in fetch(connection, sql.grants(using, user._meta.model), params):
        grants[source].add(f"{app}.{name}")
    return grants
