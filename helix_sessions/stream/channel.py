"""Pokes between processes: one thread and one connection of a process for a PostgreSQL database.

The thread starts when there is something to send or to wait for, and it and its connection go when there has
been nothing for a while. It sends NOTIFY after the commit and outside any writing transaction, because NOTIFY
takes a lock that all committing notifiers of a server share. It listens while somebody here watches.
"""

import logging
import os
import selectors
import threading
from collections import deque
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import connections

from helix_sessions import documents
from helix_sessions.conf import conf
from helix_sessions.types import Fragment

if TYPE_CHECKING:
    from helix_sessions.stream.hub import Hub

logger = logging.getLogger("helix_sessions.stream")

CHANNEL = "helix_sessions"
MAX_PAYLOAD = 7_500
"""PostgreSQL takes less than 8,000 bytes."""

_FRAGMENT_MARK = "\n"
"""What a fragment's payload begins with, and a session id cannot."""

_GAP = 0.002
"""Seconds between two NOTIFYs of a busy process; what comes in between goes in one statement."""
_IDLE = 2.0
"""Seconds without anything to do until the connection is given up."""
_SILENCE = 30.0
"""Seconds of silence after which a listening connection is tried."""
_RETRY = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_MOST_WAITING = 10_000
_MOST_FRAGMENTS = 500

# The notification is not worth a flush of the write-ahead log.
_NOTIFY = (
    "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload"
    " WHERE set_config('synchronous_commit', 'off', true) IS NOT NULL"
)
_PARAMETERS = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "application_name": CHANNEL,
}


class Channel:
    """Sends and receives pokes and fragments for one database alias. On SQLite it does nothing."""

    def __init__(self, alias: str, hub: "Hub") -> None:
        self.alias = alias
        self.listening = False
        """Whether pokes of other processes arrive at this moment."""
        self._hub = hub
        self._is_postgresql = connections[alias].vendor == "postgresql"
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell: _Bell | None = None
        self._sessions: dict[str, None] = {}
        self._fragments: deque[str] = deque()

    def announce(self, session_id: str) -> None:
        """Poke the session's readers in other processes, soon."""
        if not self._in_use:
            return
        with self._lock:
            if len(self._sessions) < _MOST_WAITING:
                self._sessions[session_id] = None
            self._ring()

    def publish(self, fragment: Fragment) -> None:
        """Pass a fragment to other processes, if it is small and there is room."""
        if not self._in_use:
            return
        payload = _payload(fragment)
        with self._lock:
            if len(payload.encode()) <= MAX_PAYLOAD and len(self._fragments) < _MOST_FRAGMENTS:
                self._fragments.append(payload)
                self._ring()

    def look(self) -> None:
        """Somebody came or left: listen, or stop."""
        if self._in_use and (self._thread is not None or self._wants_to_listen):
            with self._lock:
                self._ring()

    @property
    def _in_use(self) -> bool:
        return self._is_postgresql and conf.STREAM_NOTIFY

    @property
    def _wants_to_listen(self) -> bool:
        # A transaction-pooling proxy gives every transaction another server connection: nothing would come.
        pooled = connections.settings[self.alias].get("DISABLE_SERVER_SIDE_CURSORS")
        return self._in_use and not pooled and self._hub.watched(self.alias) > 0

    @property
    def _is_needed(self) -> bool:
        return bool(self._sessions or self._fragments or self._wants_to_listen)

    def _ring(self) -> None:
        if self._thread is None or self._bell is None:
            self._bell = _Bell()
            self._thread = threading.Thread(
                target=self._run, args=[self._bell], name=f"{CHANNEL}-{self.alias}", daemon=True
            )
            self._thread.start()
        else:
            self._bell.ring()

    def _run(self, bell: "_Bell") -> None:
        failures = 0
        while True:
            try:
                with self._connect() as connection:
                    self._serve(connection, bell)
                failures = 0
            except Exception as error:
                failures = 1 if self.listening else failures + 1
                self._lost(error)
                sleep(_RETRY[min(failures, len(_RETRY)) - 1])
            with self._lock:
                if not self._is_needed:
                    self._thread = self._bell = None
                    bell.close()
                    return

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        params = _PARAMETERS | connections[self.alias].get_connection_params()
        for ours in ("cursor_factory", "context", "prepare_threshold"):
            params.pop(ours, None)
        return psycopg.connect(**params, autocommit=True)

    def _serve(self, connection: psycopg.Connection[tuple[Any, ...]], bell: "_Bell") -> None:
        """Send and receive until there has been nothing to do for a while."""
        last_sent = last_needed = monotonic()
        while True:
            self._listen_if_wanted(connection)
            now = monotonic()
            if (self._sessions or self._fragments) and now - last_sent >= _GAP:
                connection.execute(_NOTIFY, [CHANNEL, self._take()])
                now = last_sent = monotonic()
            self._receive(connection)
            if self._is_needed:
                last_needed = now
            elif now - last_needed >= _IDLE:
                return
            if self._sessions or self._fragments:
                patience = max(0.0, last_sent + _GAP - now)
            else:
                patience = _SILENCE if self.listening else _IDLE
            if not bell.wait(patience, connection.fileno()) and self.listening:
                connection.execute("SELECT 1")

    def _listen_if_wanted(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        if self._wants_to_listen == self.listening:
            return
        if self.listening:
            self.listening = False
            connection.execute(f"UNLISTEN {CHANNEL}")
        else:
            connection.execute(f"LISTEN {CHANNEL}")
            self.listening = True
            self._hub.poke_all(self.alias)

    def _take(self) -> list[str]:
        with self._lock:
            payloads = [*self._fragments, *self._sessions]
            self._fragments.clear()
            self._sessions.clear()
        return payloads

    def _receive(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        own = connection.info.backend_pid
        for notification in connection.notifies(timeout=0):
            if notification.pid == own:
                continue  # this process was told when it committed
            if notification.payload.startswith(_FRAGMENT_MARK):
                self._hub.offer(self.alias, _fragment(notification.payload))
            else:
                self._hub.poke(self.alias, notification.payload)

    def _lost(self, error: Exception) -> None:
        logger.warning(
            "The connection for live events of %r was lost (%s); readers poll.", self.alias, type(error).__name__
        )
        self._fragments.clear()
        if self.listening:
            self.listening = False
            self._hub.poke_all(self.alias)


def _payload(fragment: Fragment) -> str:
    return _FRAGMENT_MARK + documents.write([fragment.session_id, fragment.after_seq, fragment.data])


def _fragment(payload: str) -> Fragment:
    session_id, after_seq, data = documents.load(payload)
    return Fragment(session_id=session_id, data=data, after_seq=after_seq)


class _Bell:
    """Wakes a thread that waits for sockets."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._rung = False

    def ring(self) -> None:
        if not self._rung:
            self._rung = True
            os.write(self._writer, b"!")

    def wait(self, seconds: float, *sockets: int) -> bool:
        """Until it rings or a socket has something to read; False when neither came in time."""
        with selectors.DefaultSelector() as selector:
            for file in (self._reader, *sockets):
                selector.register(file, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(seconds)}
        if self._reader in ready:
            os.read(self._reader, 64)
        self._rung = False  # after reading: who rings before this line has already said why
        return bool(ready)

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
