"""The session rows this connection wrote last.

A worker that commits step after step writes the row it wrote before, and the database can tell whether it is
still that row. So the next write reads nothing first (optimistic locking): it is decided on the remembered
row and flushed on condition that the row is unchanged. If it has changed, nothing is written, and the write
is decided again under the lock.

Two things make a row the same, and both are needed.

- It is the one that was written: every write of the store leaves a number of its own in it, `write_mark`, and
  that, the version, the head of the log and the lease are compared in the statement that writes. No other
  history of the database, after a failover or from a backup, has the same.
- It was not changed since by other means than the store. `row_version` tells, which the dialect knows: on
  PostgreSQL `xmin`, the transaction that wrote the row, which alone would not do, because a new primary hands
  out the numbers of a lost one again; on SQLite the state of the whole file as this connection sees it.

A memory belongs to one connection, and so to one thread, and goes when the connection is closed. Behind a
pooler nothing is remembered: there a connection outlives its server.
"""

import os
import time
from sys import getsizeof
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.store.engine.connection import is_between_transactions, is_told_of_pooler
from helix_sessions.store.engine.connection_cache import cache_of
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.session_columns import TEXTS_READ

MOST_ROWS = 256
MOST_BYTES = 2 * 1024 * 1024
"""So much is remembered for each connection."""
LARGEST = 32 * 1024
"""A row with longer documents is not remembered; reading it is little beside writing it."""

_LARGEST_NUMBER = 2**62 - 1  # an import lets in no larger one
_BEGINNING = int.from_bytes(os.urandom(8), "big")
_SMALL_COLUMNS = 4 * 1024
"""What a row takes, about, besides its documents."""


class KnownRow(NamedTuple):
    """A row as it was written: its version, as the database tells it, and the light columns."""

    row_version: str
    values: dict[str, Any]


class RowMemory:
    """The rows that one connection remembers."""

    def __init__(self, *, pooled: bool) -> None:
        self.rows: dict[str, tuple[KnownRow, int]] = {}
        self.size = 0
        self.direct: bool | None = False if pooled else None
        """Whether nothing pools connections between here and the server; `None`: not known yet."""

    def put(self, session_id: str, row: KnownRow, size: int) -> None:
        """Keep a row, and let those go for which there is no room, written longest ago first."""
        self.drop(session_id)
        self.rows[session_id] = row, size
        self.size += size
        while len(self.rows) > MOST_ROWS or self.size > MOST_BYTES:
            self.drop(next(iter(self.rows)))

    def keep_only(self, row_version: str) -> None:
        """Where rows share their version, what was known before another one cannot be used any more."""
        if any(row.row_version != row_version for row, _ in self.rows.values()):
            self.clear()

    def drop(self, session_id: str) -> None:
        self.size -= self.rows.pop(session_id, (None, 0))[1]

    def clear(self) -> None:
        self.rows.clear()
        self.size = 0


def new_mark() -> int:
    """A number that no other write has: the time since the machine was started, from where chance has put its
    beginning for this process."""
    return (_BEGINNING + time.monotonic_ns()) & _LARGEST_NUMBER


def recall(connection: BaseDatabaseWrapper, session_id: str) -> KnownRow | None:
    """The row as this connection wrote it last; never inside a transaction, whose end is not known."""
    memory: RowMemory | None = cache_of(connection).rows
    known = None if memory is None else memory.rows.get(session_id)
    if memory is None or known is None or not dialect_of(connection).remembers(connection):
        return None
    state: Any = connection  # its types do not know all of it
    if state.health_check_enabled and not state.health_check_done:
        return None  # which may make another connection
    if not is_between_transactions(connection) or not _is_direct(memory, connection):
        return None
    return known[0]


def remember(connection: BaseDatabaseWrapper, session_id: str, row: KnownRow | None) -> None:
    """Keep a row that was committed; without one, or if it is large, forget what was known."""
    size = 0 if row is None else sum([getsizeof(row.values[name]) for name in TEXTS_READ])
    if row is None or size > LARGEST:
        return forget(connection, session_id)
    cache = cache_of(connection)
    if cache.rows is None:
        cache.rows = RowMemory(pooled=is_told_of_pooler(connection))
    memory: RowMemory = cache.rows
    if memory.direct is not False:
        if dialect_of(connection).shares_row_version:
            memory.keep_only(row.row_version)
        memory.put(session_id, row, size + _SMALL_COLUMNS)
    return None


def forget(connection: BaseDatabaseWrapper, session_id: str) -> None:
    """Drop a row that another connection wrote."""
    memory: RowMemory | None = cache_of(connection).rows
    if memory is not None:
        memory.drop(session_id)


def _is_direct(memory: RowMemory, connection: BaseDatabaseWrapper) -> bool:
    """Asked once for each connection that has a row to remember."""
    if memory.direct is None:
        memory.direct = dialect_of(connection).is_direct(connection)
        if not memory.direct:
            memory.clear()
    return memory.direct
