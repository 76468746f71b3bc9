"""Pokes between processes: one thread and one connection of a process for a PostgreSQL database.

The thread starts when there is something to send or to wait for, and ends, with its connection, when it has
been idle for a while. It sends NOTIFY after the commit and outside any writing transaction, because NOTIFY
takes a lock that all committing notifiers of a server share. It listens while this process has watchers.
"""

import atexit
import logging
import os
import selectors
import threading
from collections import deque
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import connections
from psycopg import pq

from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.stream import sql
from helix_sessions.stream.packets import FRAGMENT_MARK, MAX_PAYLOAD, Packet, fragments_of
from helix_sessions.stream.sql import CHANNEL
from helix_sessions.types import Fragment

if TYPE_CHECKING:
    from helix_sessions.stream.hub import Hub

logger = logging.getLogger("helix_sessions.stream")

_GAP = 0.002
_LONGEST_GAP = 0.25
_SHARE = 10
"""Sending takes at most about a tenth of the time: between two NOTIFYs passes ten times what the last one
took, within these bounds. What comes in between goes in one statement, so the busier, the cheaper."""
_BUSY_GAP = 0.02
"""Pokes that follow each other closely wait longer each time, up to this: a process that commits hundreds of
steps a second would send as many, and wake every process that listens as often."""
_FRAGMENT_GAP = 0.00025
_LONGEST_FRAGMENT_GAP = 0.1
"""Fragments wait so much longer for each that was sent last: those of one stream not at all, those of 200 for
50 ms, in which one packet collects several. Pokes wait for no fragment, and take along those that wait."""
_IDLE = 2.0
"""Seconds of idleness until the connection is closed."""
_FAREWELL = 1.0
"""Seconds a process that ends waits until its last announcements are sent."""
_SILENCE = 30.0
"""Seconds of silence after which a listening connection is tested."""
_RETRY = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_MOST_WAITING = 10_000
_MOST_FRAGMENTS = 500

_PREPARED = b"helix_sessions_notify"
_PARAMETERS: dict[str, Any] = {
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
        self._notifies = sql.notifies(connections[alias])
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell: _Bell | None = None
        self._sessions: dict[str, None] = {}
        self._fragments: deque[Packet] = deque()
        self._open_packets: dict[str, Packet] = {}
        self._all_sent = threading.Event()
        self._all_sent.set()

    def announce(self, session_id: str) -> None:
        """Poke the session's readers in other processes, soon."""
        if not self._in_use:
            return
        with self._lock:
            if len(self._sessions) < _MOST_WAITING:
                self._sessions[session_id] = None
            if len(self._sessions) == 1 or self._thread is None:  # the thread knows of those that wait
                self._ring()

    def publish(self, fragment: Fragment, text: str | None = None) -> None:
        """Pass a fragment to other processes, if it is small and there is room. `text`: its data, written."""
        if not self._in_use:
            return
        text = documents.write(fragment.data) if text is None else text
        with self._lock:
            packet = self._open_packets.get(fragment.message_id or "")
            if packet is None or not packet.add(fragment, text):
                packet = Packet(fragment, text)
                if packet.size > MAX_PAYLOAD or len(self._fragments) >= _MOST_FRAGMENTS:
                    return
                self._fragments.append(packet)
                if fragment.message_id is not None:
                    self._open_packets[fragment.message_id] = packet
                if len(self._fragments) == 1:  # the thread knows of those that wait
                    self._ring()

    def look(self) -> None:
        """The number of watchers changed: listen, or stop, if that follows."""
        if self._wants_to_listen != self.listening:
            with self._lock:
                self._ring()

    @property
    def _in_use(self) -> bool:
        return self._notifies and conf.STREAM_NOTIFY

    @property
    def _wants_to_listen(self) -> bool:
        return self._in_use and not self._is_pooled and self._hub.watched(self.alias) > 0

    @property
    def _is_pooled(self) -> bool:
        """A transaction-pooling proxy gives every transaction another server connection: neither prepared
        statements nor LISTEN would survive."""
        return bool(connections.settings[self.alias].get("DISABLE_SERVER_SIDE_CURSORS"))

    @property
    def _has_something_to_send(self) -> bool:
        return bool(self._sessions or self._fragments)

    @property
    def _is_needed(self) -> bool:
        return self._has_something_to_send or self._wants_to_listen

    def _ring(self) -> None:
        if self._has_something_to_send:
            self._all_sent.clear()
        if self._thread is None or self._bell is None:
            self._start()
        else:
            self._bell.ring()

    def _start(self) -> None:
        """Start the thread. Where there is none left, the next poke tries again."""
        atexit.unregister(self._finish)
        atexit.register(self._finish)
        bell = None
        try:
            bell = _Bell()
            thread = threading.Thread(
                target=self._run, args=[bell], name=f"{CHANNEL}-{self.alias}", daemon=True
            )
            thread.start()
        except (RuntimeError, OSError) as error:
            self._drop_fragments()
            if bell is not None:
                bell.close()
            logger.warning("Other processes are not told of commits to %r (%s).", self.alias, error)
        else:
            self._thread, self._bell = thread, bell

    def _finish(self) -> None:
        """Before the process ends: announce what it committed last."""
        if os.getpid() == self._process:  # a forked child has no thread that would send
            self._all_sent.wait(_FAREWELL)

    def _drop_fragments(self) -> None:
        self._fragments.clear()
        self._open_packets.clear()

    def _run(self, bell: "_Bell") -> None:
        failures = 0
        while True:
            try:
                with self._connect() as connection:
                    if not self._is_pooled:
                        connection.pgconn.prepare(_PREPARED, sql.NOTIFY)
                    self._serve(connection, bell)
                failures = 0
            except Exception as error:
                failures = 1 if self.listening else failures + 1
                if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                    failures = len(_RETRY)
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
        last_needed = monotonic()
        next_send = next_fragments = 0.0
        pokes = _Pace()
        with selectors.DefaultSelector() as selector:
            selector.register(bell.file, selectors.EVENT_READ)
            selector.register(connection.fileno(), selectors.EVENT_READ)
            while True:
                self._listen_if_wanted(connection)
                now = monotonic()
                if self._has_something_to_send and now >= self._due(next_send, pokes.next, next_fragments):
                    if self._sessions:
                        pokes.sent(now)
                    sent = self._send(connection, bell)
                    took = monotonic() - now
                    now += took
                    next_send = now + min(max(_GAP, took * _SHARE), _LONGEST_GAP)
                    next_fragments = now + min(sent * _FRAGMENT_GAP, _LONGEST_FRAGMENT_GAP)
                if self.listening:
                    self._receive(connection)
                if self._is_needed:
                    last_needed = now
                elif now - last_needed >= _IDLE:
                    return
                patience = next_send - now
                if patience <= 0:
                    with self._lock:
                        bell.unmute()
                    if self._wants_to_listen != self.listening:
                        continue
                    if self._has_something_to_send:
                        patience = self._due(next_send, pokes.next, next_fragments) - now
                        if patience <= 0:
                            continue
                    else:
                        patience = _SILENCE if self.listening else _IDLE
                if not selector.select(patience) and patience == _SILENCE:
                    connection.execute(sql.TRY)

    def _listen_if_wanted(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        if self._wants_to_listen == self.listening:
            return
        if self.listening:
            self.listening = False
            connection.execute(sql.UNLISTEN)
        else:
            connection.execute(sql.LISTEN)
            self.listening = True
            self._hub.poke_all(self.alias)

    def _due(self, next_send: float, next_pokes: float, next_fragments: float) -> float:
        waiting = [next_pokes] * bool(self._sessions) + [next_fragments] * bool(self._fragments)
        return max(next_send, min(waiting, default=0.0))

    def _send(self, connection: psycopg.Connection[tuple[Any, ...]], bell: "_Bell") -> int:
        """How many packets of fragments were sent."""
        with self._lock:
            bell.mute()
            fragments, sessions = [packet.payload() for packet in self._fragments], self._sessions
            self._drop_fragments()
            self._sessions = {}
        try:
            _notify(connection, [*fragments, *sessions], prepared=not self._is_pooled)
        except BaseException:
            with self._lock:
                self._sessions |= sessions
            raise
        with self._lock:
            if not self._has_something_to_send:
                self._all_sent.set()
        return len(fragments)

    def _receive(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        connection.pgconn.consume_input()
        while (notification := connection.pgconn.notifies()) is not None:
            payload = notification.extra.decode()
            if notification.be_pid == connection.pgconn.backend_pid:
                continue  # this process was poked when it committed
            if payload.startswith(FRAGMENT_MARK):
                for fragment in fragments_of(payload):
                    self._hub.offer(self.alias, fragment)
            else:
                self._hub.poke(self.alias, payload)

    def _lost(self, error: Exception) -> None:
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            logger.info("LISTEN is impossible on %r, which is a standby; readers poll.", self.alias)
        else:
            logger.warning(
                "The connection for live events of %r was lost (%s); readers poll.",
                self.alias,
                type(error).__name__,
            )
        with self._lock:
            self._drop_fragments()
        if self.listening:
            self.listening = False
            self._hub.poke_all(self.alias)


class _Pace:
    """When pokes are sent next."""

    def __init__(self) -> None:
        self._gap = _GAP
        self.next = 0.0

    def sent(self, now: float) -> None:
        """Some are sent now."""
        is_busy = now < self.next + self._gap
        self._gap = min(2 * self._gap, _BUSY_GAP) if is_busy else _GAP
        self.next = now + self._gap


def _notify(connection: psycopg.Connection[tuple[Any, ...]], payloads: list[str], *, prepared: bool) -> None:
    """One statement for all payloads, with as little overhead as possible: every commit pays for it."""
    channel = CHANNEL.encode()
    if len(payloads) > 1:
        result = connection.pgconn.exec_params(sql.NOTIFY_ALL, [channel, _array(payloads)])
    elif prepared:
        result = connection.pgconn.exec_prepared(_PREPARED, [channel, payloads[0].encode()])
    else:
        result = connection.pgconn.exec_params(sql.NOTIFY, [channel, payloads[0].encode()])
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise psycopg.OperationalError(result.get_error_message())


def _array(payloads: list[str]) -> bytes:
    """The payloads as PostgreSQL writes an array."""
    quoted = ['"' + payload.replace("\\", "\\\\").replace('"', '\\"') + '"' for payload in payloads]
    return b"{" + ",".join(quoted).encode() + b"}"


class _Bell:
    """Wakes a thread that waits for sockets."""

    def __init__(self) -> None:
        self.file, self._writer = os.pipe()
        os.set_blocking(self.file, False)
        os.set_blocking(self._writer, False)
        self._rung = False

    # These are called under one lock.

    def ring(self) -> None:
        if not self._rung:
            self._rung = True
            os.write(self._writer, b"!")

    def mute(self) -> None:
        """Ignore rings for a while, because the thread will look anyway."""
        self.unmute()
        self._rung = True

    def unmute(self) -> None:
        """Accept rings again."""
        with suppress(BlockingIOError):
            os.read(self.file, 64)
        self._rung = False

    def close(self) -> None:
        os.close(self.file)
        os.close(self._writer)
