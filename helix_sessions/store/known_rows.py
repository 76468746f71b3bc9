"""The session rows this connection wrote last.

A worker that commits step after step writes the row it wrote before. PostgreSQL tells whether it is still
that row: `xmin` is the transaction that wrote it, and every change by anybody changes it. So the next write
needs no lock and no reading first; it is decided on the remembered row and flushed with the condition that
the row still has the remembered `xmin`, which takes the row's lock in the same statement. If it has not,
nothing is written, and the write is decided anew under the lock.

A memory belongs to one connection, and so to one thread, and goes when the connection goes.
"""

from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.conf import conf

MOST = 256
_NAME = "_helix_sessions_known_rows"


class KnownRow(NamedTuple):
    """A row as it was written: the light columns, and the transaction that wrote it."""

    xmin: str
    values: dict[str, Any]


def recall(connection: BaseDatabaseWrapper, session_id: str) -> KnownRow | None:
    """The row as this connection wrote it last; never inside a transaction, whose end is not known."""
    if connection.in_atomic_block or conf.PORTABLE_WRITES:
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
