"""The session rows this connection wrote last.

A worker that commits step after step writes the row it wrote before, and the engine tells whether it is
still that row by a mark that every change by anybody changes. So the next write needs no reading first; it is
decided on the remembered row and flushed on condition of the mark. If that has changed, nothing is written,
and the write is decided anew under the lock.

On PostgreSQL the mark is `xmin`, the transaction that wrote the row, and one statement takes the row's lock,
compares and writes. On SQLite it is the state of the whole file as this connection sees it: how often others
have changed it, and how many rows the connection itself has; it is compared within the transaction.

A memory belongs to one connection, and so to one thread, and goes when the connection goes.
"""

from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.conf import conf
from helix_sessions.store.database import fetch

MOST = 256
_NAME = "_helix_sessions_known_rows"


class KnownRow(NamedTuple):
    """A row as it was written: the light columns, and the mark it was left with."""

    mark: str
    values: dict[str, Any]


def are_kept(connection: BaseDatabaseWrapper) -> bool:
    """Whether rows are remembered. Not while SQLite logs its queries: the plain way is what is logged."""
    return not conf.PORTABLE_WRITES and not (connection.vendor == "sqlite" and connection.queries_logged)


def recall(connection: BaseDatabaseWrapper, session_id: str) -> KnownRow | None:
    """The row as this connection wrote it last; never inside a transaction, whose end is not known."""
    if connection.in_atomic_block or not are_kept(connection):
        return None
    raw, rows = vars(connection).get(_NAME, (None, {}))
    known: KnownRow | None = rows.get(session_id) if raw is connection.connection else None
    return known


def remember(connection: BaseDatabaseWrapper, session_id: str, row: KnownRow | None) -> None:
    """Keep a row that was committed; without one, forget what was known."""
    if row is None:
        return forget(connection, session_id)
    raw, rows = vars(connection).get(_NAME, (None, {}))
    if raw is not connection.connection:
        rows = {}
        vars(connection)[_NAME] = (connection.connection, rows)
    rows.pop(session_id, None)
    rows[session_id] = row
    if len(rows) > MOST:
        del rows[next(iter(rows))]


def forget(connection: BaseDatabaseWrapper, session_id: str) -> None:
    """Somebody else wrote the row."""
    vars(connection).get(_NAME, (None, {}))[1].pop(session_id, None)


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
