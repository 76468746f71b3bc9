"""Which permissions a user has, as the authentication backends of the project decide it.

Django's `ModelBackend` reads the permissions of a user with two queries of its ORM, which together cost more
than most calls of the store. Here one prepared statement reads them, and puts them where that backend keeps
what it has read: on the user of this request. It decides as before, and so do the backends beside it.
"""

from typing import Any

from django.contrib.auth import get_backends
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import PermissionsMixin

from helix_sessions.conf import conf
from helix_sessions.models.databases import sessions_database
from helix_sessions.store.keyed import grants

_KEPT = ("_user_perm_cache", "_group_perm_cache")
"""Where `ModelBackend` keeps the permissions of a user, and those of the groups."""

_READING = ("_get_permissions", "_get_user_permissions", "_get_group_permissions")
"""How it reads them. What a backend reads in another way is left to it."""


def holds_any(user: Any, *permissions: str) -> bool:
    """Whether the user has one of these permissions."""
    if _will_be_read(user):
        using = sessions_database(conf.API_DATABASE)
        if grants.are_here(using, user):
            for name, found in zip(_KEPT, grants.read(using, user), strict=True):
                setattr(user, name, found)
    return any(user.has_perm(permission) for permission in permissions)


def _will_be_read(user: Any) -> bool:
    """Whether a backend is about to read the permissions of this user, and each that does so does it in
    Django's way."""
    if not isinstance(user, PermissionsMixin) or user.is_superuser or not getattr(user, "is_active", False):
        return False
    if any(hasattr(user, name) for name in _KEPT):
        return False
    reading = [type(backend) for backend in get_backends() if hasattr(backend, _READING[0])]
    return bool(reading) and all(
        getattr(kind, name, None) is getattr(ModelBackend, name) for kind in reading for name in _READING
    )
