"""A loopback proxy before PostgreSQL: it counts what passes, and can make the way longer.

It runs in a process of its own, accepts connections from this machine only, and ends with its parent.
"""

import multiprocessing
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

LONGEST_LIFE = 3600.0
_TIMER_SLACK = 0.00006
"""What Linux adds to a short sleep."""

_STATEMENTS = (b"Q", b"E")
"""Messages of the protocol that execute something: a simple query, and Execute."""

_ENCRYPTION_REQUESTS = (80877103, 80877104)


@dataclass(frozen=True)
class Proxy:
    """A running proxy: its port, and what it counted."""

    port: int
    counters: Any

    def counted(self) -> tuple[int, int]:
        """Statements and round trips up to now."""
        return self.counters[0], self.counters[1]


@contextmanager
def proxy(target: int, delay: float = 0.0) -> Iterator[Proxy]:
    """Run a proxy to a port of this machine that holds every packet back for `delay` seconds."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    counters = context.Array("q", 2)
    process = context.Process(target=_serve, args=(target, delay, counters, theirs), daemon=True)
    process.start()
    try:
        yield Proxy(ours.recv(), counters)
    finally:
        process.terminate()
        process.join()


def _serve(target: int, delay: float, counters: Any, ready: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal told the parent as well, which ends us
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(1.0)
        ready.send(listener.getsockname()[1])
        parent, end = os.getppid(), time.monotonic() + LONGEST_LIFE
        while os.getppid() == parent and time.monotonic() < end:
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            _Conversation(client, target, delay, counters).start()


class _Conversation:
    """One client's connection, two pumps that never wait for each other."""

    def __init__(self, client: socket.socket, target: int, delay: float, counters: Any) -> None:
        client.settimeout(None)
        self.client = client
        self.server = socket.create_connection(("127.0.0.1", target))
        self.delay = delay
        self.counters = counters
        self.parser = _Parser()
        self.asking = False
        for end in (self.client, self.server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for source, sink in ((self.client, self.server), (self.server, self.client)):
            packets: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
            threading.Thread(target=self._receive, args=(source, packets), daemon=True).start()
            threading.Thread(target=self._send, args=(packets, sink), daemon=True).start()

    def _receive(self, source: socket.socket, packets: "SimpleQueue[tuple[float, bytes]]") -> None:
        data = b"?"
        while data:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            due = time.perf_counter() + self.delay
            self._count(source is self.client, data)
            packets.put((due, data))

    def _send(self, packets: "SimpleQueue[tuple[float, bytes]]", sink: socket.socket) -> None:
        while True:
            due, data = packets.get()
            wait = due - time.perf_counter() - _TIMER_SLACK
            if wait > 0:
                time.sleep(wait)
            try:
                if not data:
                    sink.shutdown(socket.SHUT_RDWR)
                    return
                sink.sendall(data)
            except OSError:
                return

    def _count(self, from_client: bool, data: bytes) -> None:
        if not from_client:
            self.asking = False
            return
        statements = self.parser.feed(data)
        with self.counters.get_lock():
            self.counters[0] += statements
            if data and not self.asking:
                self.counters[1] += 1
        self.asking = True


class _Parser:
    """Finds the messages in what a client of PostgreSQL sends."""

    def __init__(self) -> None:
        self.rest = b""
        self.started = False

    def feed(self, data: bytes) -> int:
        """How many statements the data completes."""
        self.rest += data
        statements = 0
        while True:
            head = 5 if self.started else 4
            if len(self.rest) < head:
                return statements
            (length,) = struct.unpack_from("!i", self.rest, head - 4)
            size = length + head - 4
            if len(self.rest) < size:
                return statements
            if self.started:
                statements += self.rest[:1] in _STATEMENTS
            else:
                (code,) = struct.unpack_from("!i", self.rest, 4)
                self.started = code not in _ENCRYPTION_REQUESTS
            self.rest = self.rest[size:]
