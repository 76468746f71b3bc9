"""What the store caches beside a database connection of Django's: a cursor, and the rows it wrote last.

A cache belongs to one connection to the server and to the process that opened it. It goes when the connection
is closed, and a forked child begins with an empty one.
"""

import os
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

_ATTRIBUTE = "_helix_sessions_cache"

_process: object = object()
"""Stands for this process. A forked child has another."""


def _after_fork() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_after_fork)


class ConnectionCache:
    """The cache of one connection to the server."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        """The driver's connection."""
        self.process = _process
        self.cursor: Any = None
        self.rows: Any = None
        """A `RowMemory`, see `remembered_rows`."""
        self.compiles = True
        """Whether the server may compile statements; a claim ends that."""


class _Close:
    """`close()` of a connection that has a cache. Django has no signal for it."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    def __call__(self) -> None:
        attributes = vars(self._connection)
        attributes.pop(_ATTRIBUTE, None)
        if attributes.get("close") is self:
            del attributes["close"]
        type(self._connection).close(self._connection)


def cache_of(connection: BaseDatabaseWrapper) -> ConnectionCache:
    """The cache of the connection that is open now."""
    attributes = vars(connection)
    cache: ConnectionCache | None = attributes.get(_ATTRIBUTE)
    if cache is None or cache.raw is not connection.connection or cache.process is not _process:
        cache = attributes[_ATTRIBUTE] = ConnectionCache(connection.connection)
        attributes.setdefault("close", _Close(connection))
    return cache
