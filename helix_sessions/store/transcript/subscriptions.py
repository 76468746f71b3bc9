"""Subscriptions: the log from a point on and as it grows, and fragments, which are not stored."""

from collections.abc import Callable
from functools import partial
from time import sleep
from typing import Any, Literal, TypeVar, overload

from django.db import InterfaceError, OperationalError, connections

from helix_sessions.content import documents
from helix_sessions.models import Session
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.session_rows import read_row
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import table
from helix_sessions.store.transcript import fragments as kept_fragments
from helix_sessions.store.transcript import log_rows, sql
from helix_sessions.store.transcript.events import record
from helix_sessions.stream.feeds import AsyncTail
from helix_sessions.stream.followers import FIRST_BATCH, Batch, Entry, Item, next_batch
from helix_sessions.stream.hub import hub
from helix_sessions.stream.tails import Tail
from helix_sessions.types import JSON, UNSET, EventRecord, Fragment

T = TypeVar("T")

_PATIENCE = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds to wait before each new attempt to read from a database that went away."""


@overload
def subscribe(
    store: Store, session_id: str, *, after: int | None = None, fragments: Literal[False] = False
) -> Tail[EventRecord]: ...


@overload
def subscribe(
    store: Store, session_id: str, *, after: int | None = None, fragments: bool
) -> Tail[EventRecord | Fragment]: ...


def subscribe(
    store: Store, session_id: str, *, after: int | None = None, fragments: bool = False
) -> Tail[Any]:
    """Follow the log after `after`, then live: each event once, in order, from any writer.

    An iterator; on the async store an async iterator, which may be awaited first to make sure that the
    session is there. Without `after` it starts at the head as of this call. It ends when the session is
    deleted or it is closed. With `fragments` it begins with what was said so far of the message under way,
    and what is published while it waits comes in between.
    """
    log = _log(store, session_id)
    return Tail(
        log,
        partial(event_or_fragment, log.key[1]),
        after=inputs.optional_integer(after, "after"),
        fragments=fragments,
    )


def async_tail(
    store: Store, session_id: str, *, after: int | None = None, fragments: bool = False
) -> AsyncTail[Any]:
    """`subscribe` for async code."""
    log = _log(store, session_id)
    return AsyncTail(
        log,
        partial(event_or_fragment, log.key[1]),
        after=inputs.optional_integer(after, "after"),
        fragments=fragments,
    )


def _log(store: Store, session_id: str) -> "SessionLog":
    return SessionLog(store.using, session_key(session_id), owner=store._owner)


def detach(store: Store, session_id: str) -> None:
    """End the subscriptions of this process to a session. Events stay."""
    store._read(session_id, ("session_id",))
    hub.detach(store.using, session_id)


def publish_fragment(store: Store, session_id: str, data: JSON) -> None:
    """Reach those who read along now. Nothing is stored or replayed, and under pressure it is dropped.

    It is sent at once, even if the caller's transaction is rolled back, and to other processes only if
    it is small (about 7 KB).
    """
    documents.dump(data)
    head = store._read(session_id, ("head_seq",)).head_seq
    hub.publish(store.using, Fragment(session_id=session_id, data=data, after_seq=head))


class SessionLog:
    """A session's log, as live readers read it. It survives a database that goes away for some seconds."""

    def __init__(self, using: str, session_id: str, *, owner: Any = UNSET) -> None:
        self.key = (using, session_id)
        self._owner = owner
        self._limit = FIRST_BATCH

    def open(self) -> tuple[Any, int]:
        """When the session was created, and its last event."""
        return self._patiently(self._open)

    def read(self, after: int) -> Batch | None:
        """The next events after a number, in one query; None when there is no session."""
        return self._patiently(partial(self._read, after))

    def kept(self) -> list[Fragment]:
        """What is kept of the message under way."""
        return self._patiently(partial(kept_fragments.read, *self.key))

    def _open(self) -> tuple[Any, int]:
        row = read_row(connections[self.key[0]], self.key[1], ("created_at", "head_seq"), self._owner)
        return row.created_at, row.head_seq

    def _read(self, after: int) -> Batch | None:
        connection = connections[self.key[0]]
        limit = self._limit
        session_id = self.key[1]
        params = [session_id, after, session_id, limit, session_id]
        rows = fetch(connection, sql.next_events(dialect_of(connection)), params)
        if not rows:
            return None
        created_at, head = table(Session).decoder(("created_at", "head_seq"))(rows[0][:2])
        found = [row[2:] for row in rows if row[2] is not None]
        entries = [Entry(row) for row in log_rows.opened(self.key[1], found)]
        self._limit = next_batch(limit, entries)
        return Batch(created_at, entries, head, is_last=len(entries) < limit)

    def _patiently(self, read: Callable[[], T]) -> T:
        connection = connections[self.key[0]]
        for seconds in _PATIENCE:
            try:
                return read()
            except (OperationalError, InterfaceError):
                if connection.in_atomic_block:
                    raise
                connection.close()
                sleep(seconds)
        return read()


def event_or_fragment(session_id: str, item: Item) -> EventRecord | Fragment:
    """What a subscription yields."""
    return record(session_id, item.row) if isinstance(item, Entry) else item
