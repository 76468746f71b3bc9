"""What an operation on memories is given: the database, the embedder, and whose memories it may reach."""

from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.exceptions import ForeignNamespace
from helix_sessions.models.databases import sessions_database
from helix_sessions.store.memory import names
from helix_sessions.store.memory.names import Namespace
from helix_sessions.store.memory.vectors import Embed


class MemoryScope:
    """`owned_by` (a user or its key) confines it to the namespaces of that user: all others are empty to it,
    and what it would put there is refused."""

    def __init__(self, using: str | None = None, *, embed: Embed | None = None, owned_by: Any = None) -> None:
        self.using = sessions_database(using)
        self._embed = embed
        self._home: Namespace = () if owned_by is None else names.owner_namespace(owned_by)

    @property
    def _connection(self) -> BaseDatabaseWrapper:
        return connections[self.using]

    def _reaches(self, namespace: Namespace) -> bool:
        return namespace[: len(self._home)] == self._home

    def _refuse_foreign(self, namespace: Namespace) -> None:
        """Raise `ForeignNamespace` unless what begins so is within reach."""
        if self._home and namespace[: len(self._home)] != self._home:
            raise ForeignNamespace

    def _narrowed(self, prefix: Namespace) -> Namespace | None:
        """The part of a prefix that is within reach; `None` if there is none."""
        if not self._home or prefix[: len(self._home)] == self._home:
            return prefix
        return self._home if self._home[: len(prefix)] == prefix else None
