"""The session rows this connection wrote last.

A worker that commits step after step writes the row it wrote before, and the database can tell whether it is
still that row. So the next write needs no reading first; it is decided on the remembered row and flushed on
condition that the row is the same. If it is not, nothing is written, and the write is decided anew under the
lock.

Two things make a row the same, and both are needed.

- It is the one that was written: every write of the store leaves a number of its own in it, `write_mark`, and
  that, the version, the head of the log and the lease are compared in the statement that writes. No other
  history of the database, after a failover or from a backup, has the same.
- Nobody changed it since past the store. On PostgreSQL `xmin` tells, the transaction that wrote the row;
  alone it would not do, for what a lost primary handed out is handed out again. On SQLite the state of the
  whole file as this connection sees it tells: how often others have changed it, and how many rows the
  connection itself has; it is compared within the transaction.

A memory belongs to one connection, and so to one thread, and goes when the connection is closed. Behind a
pooler nothing is remembered: there a connection outlives its server.
"""

import os
import time
from sys import getsizeof
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.conf import conf
from helix_sessions.store.engine.connection import (
    fetch,
    has_proxy,
    is_between_transactions,
    is_told_of_pooler,
)
from helix_sessions.store.engine.kept import kept

MOST_ROWS = 256
MOST_BYTES = 2 * 1024 * 1024
"""So much is remembered for each connection."""
LARGEST = 32 * 1024
"""A row with longer documents is not remembered; reading it is little beside writing it."""

_LARGEST_NUMBER = 2**62 - 1  # an import lets in no larger one
_BEGINNING = int.from_bytes(os.urandom(8), "big")
_SMALL_COLUMNS = 4 * 1024
"""What a row takes, about, besides its documents."""
_DOCUMENTS = ("tags", "metadata", "error", "failure_reason", "interrupt_reason", "open_calls")


class KnownRow(NamedTuple):
    """A row as it was written: the light columns, and the mark the engine gave it."""

    mark: str
    values: dict[str, Any]


class Memory:
    """What is remembered for one connection."""

    def __init__(self, *, pooled: bool) -> None:
        self.rows: dict[str, tuple[KnownRow, int]] = {}
        self.size = 0
        self.direct: bool | None = False if pooled else None
        """Whether nothing pools connections between here and the server; `None`: nobody has asked."""

    def put(self, session_id: str, row: KnownRow, size: int) -> None:
        """Keep a row, and let those go for which there is no room, written longest ago first."""
        self.drop(session_id)
        self.rows[session_id] = row, size
        self.size += size
        while len(self.rows) > MOST_ROWS or self.size > MOST_BYTES:
            self.drop(next(iter(self.rows)))

    def drop(self, session_id: str) -> None:
        self.size -= self.rows.pop(session_id, (None, 0))[1]

    def clear(self) -> None:
        self.rows.clear()
        self.size = 0


def new_mark() -> int:
    """A number that no other write has: the time since the machine was started, from where chance has put its
    beginning for this process."""
    return (_BEGINNING + time.monotonic_ns()) & _LARGEST_NUMBER


def are_kept(connection: BaseDatabaseWrapper) -> bool:
    """Whether rows are remembered. Not while SQLite logs its queries: the plain way is what is logged."""
    return not (conf.PORTABLE_WRITES or (connection.vendor == "sqlite" and connection.queries_logged))


def recall(connection: BaseDatabaseWrapper, session_id: str) -> KnownRow | None:
    """The row as this connection wrote it last; never inside a transaction, whose end is not known."""
    memory: Memory | None = kept(connection).memory
    known = None if memory is None else memory.rows.get(session_id)
    if memory is None or known is None or not are_kept(connection):
        return None
    state: Any = connection  # its types do not know all of it
    if state.health_check_enabled and not state.health_check_done:
        return None  # which may make another connection
    if not is_between_transactions(connection) or not _is_direct(memory, connection):
        return None
    return known[0]


def remember(connection: BaseDatabaseWrapper, session_id: str, row: KnownRow | None) -> None:
    """Keep a row that was committed; without one, or if it is large, forget what was known."""
    size = 0 if row is None else sum([getsizeof(row.values[name]) for name in _DOCUMENTS])
    if row is None or size > LARGEST:
        return forget(connection, session_id)
    beside = kept(connection)
    if beside.memory is None:
        beside.memory = Memory(pooled=is_told_of_pooler(connection))
    memory: Memory = beside.memory
    if memory.direct is not False:
        if connection.vendor == "sqlite":
            _forget_older_marks(memory, row.mark)
        memory.put(session_id, row, size + _SMALL_COLUMNS)
    return None


def forget(connection: BaseDatabaseWrapper, session_id: str) -> None:
    """Somebody else wrote the row."""
    memory: Memory | None = kept(connection).memory
    if memory is not None:
        memory.drop(session_id)


def _forget_older_marks(memory: Memory, mark: str) -> None:
    """The file has changed since, so nothing that was known before can be used."""
    if any(row.mark != mark for row, _ in memory.rows.values()):
        memory.clear()


def _is_direct(memory: Memory, connection: BaseDatabaseWrapper) -> bool:
    """Asked once for each connection that has a row to remember."""
    if memory.direct is None:
        memory.direct = connection.vendor != "postgresql" or not has_proxy(connection)
        if not memory.direct:
            memory.clear()
    return memory.direct


def shared_mark(connection: BaseDatabaseWrapper) -> str | None:
    """The mark of every row that the transaction has written, where the engine has one for all of them and
    the next write can use it."""
    if connection.vendor == "postgresql" or connection.savepoint_ids or not are_kept(connection):
        return None
    return sqlite_mark(connection)


def sqlite_mark(connection: BaseDatabaseWrapper) -> str:
    """The mark of the file, inside a transaction that has written what it has to write."""
    [[others]] = fetch(connection, "PRAGMA data_version", [])
    return f"{others} {own_changes(connection)}"


def own_changes(connection: BaseDatabaseWrapper) -> str:
    """The half of a mark on SQLite that costs no statement."""
    return str(connection.connection.total_changes)
