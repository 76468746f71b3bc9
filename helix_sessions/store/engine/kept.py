"""What the store keeps beside a connection of Django's: a cursor, and the rows it wrote last.

It belongs to one connection to the server and to the process that made it, and goes when that is closed.
"""

import os
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

_NAME = "_helix_sessions_kept"

_process: object = object()
"""Another one in each process: a child that was forked has its own."""


def _be_another() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_be_another)


class Kept:
    """What is kept for one connection to the server."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.process = _process
        self.cursor: Any = None
        self.memory: Any = None
        """The rows, see `remembered_rows`."""


class _Closing:
    """`close` of a connection for which something is kept. Django has no signal for it."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    def __call__(self) -> None:
        own = vars(self._connection)
        own.pop(_NAME, None)
        if own.get("close") is self:
            del own["close"]
        type(self._connection).close(self._connection)


def kept(connection: BaseDatabaseWrapper) -> Kept:
    """What is kept for the connection that is open now, of this process: a child of it shares neither."""
    own = vars(connection)
    found: Kept | None = own.get(_NAME)
    if found is None or found.raw is not connection.connection or found.process is not _process:
        found = own[_NAME] = Kept(connection.connection)
        own.setdefault("close", _Closing(connection))
    return found
