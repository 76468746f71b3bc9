"""Loopback proxies: one before PostgreSQL that cuts connections in the middle of a commit, one that is far.

The first reads the protocol: a commit is the query `COMMIT`, or outside a transaction the execution of a
statement that writes. It is cut before it reaches the server, after the server has answered it, or as soon as
it has been passed on, when nobody can say what will become of it.
"""

import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from tests.torture.lanes import fork_context

BEFORE, AFTER, MEANWHILE = range(3)
NAMES = ("before the server had it", "after the server answered", "while the server was at it")
_WRITES = (b"WITH taken", b"INSERT", b"UPDATE", b"DELETE")
_ENCRYPTION_REQUESTS = (80877103, 80877104)


@contextmanager
def cutting_proxy(target: int, seed: int, one_in: int) -> Iterator[tuple[int, Any]]:
    """The port of a proxy that cuts one in so many commits, and how many it cut in each way."""
    cuts = fork_context.Array("q", len(NAMES))
    listener = socket.create_server(("127.0.0.1", 0))
    process = fork_context.Process(target=_serve, args=(listener, target, seed, one_in, cuts), daemon=True)
    process.start()
    try:
        yield listener.getsockname()[1], cuts
    finally:
        listener.close()
        process.kill()
        process.join()


@contextmanager
def distant(target: int, delay: float) -> Iterator[tuple[int, Callable[[], None]]]:
    """The port of a proxy that takes so many seconds for everything, and how to cut it off, with all that is
    still on its way."""
    listener = socket.create_server(("127.0.0.1", 0))
    process = fork_context.Process(target=_serve_late, args=(listener, target, delay), daemon=True)
    process.start()
    try:
        yield listener.getsockname()[1], process.kill
    finally:
        listener.close()
        process.kill()
        process.join()


def _serve_late(listener: socket.socket, target: int, delay: float) -> None:
    parent = os.getppid()
    listener.settimeout(1.0)
    while os.getppid() == parent:
        try:
            client, _ = listener.accept()
            client.settimeout(None)
            server = socket.create_connection(("127.0.0.1", target))
        except (TimeoutError, ConnectionRefusedError):
            continue
        for source, sink in ((client, server), (server, client)):
            on_the_way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
            threading.Thread(target=_take, args=(source, on_the_way, delay), daemon=True).start()
            threading.Thread(target=_deliver, args=(on_the_way, sink), daemon=True).start()


def _take(source: socket.socket, on_the_way: "SimpleQueue[tuple[float, bytes]]", delay: float) -> None:
    data = b"?"
    while data:
        try:
            data = source.recv(1 << 16)
        except OSError:
            data = b""
        on_the_way.put((time.monotonic() + delay, data))


def _deliver(on_the_way: "SimpleQueue[tuple[float, bytes]]", sink: socket.socket) -> None:
    with suppress(OSError):
        while True:
            due, data = on_the_way.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                sink.shutdown(socket.SHUT_RDWR)
                return
            sink.sendall(data)


def _serve(listener: socket.socket, target: int, seed: int, one_in: int, cuts: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    choice = random.Random(seed)
    listener.settimeout(1.0)
    while os.getppid() == parent:
        try:
            client, _ = listener.accept()
        except TimeoutError:
            continue
        client.settimeout(None)
        server = socket.create_connection(("127.0.0.1", target))
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _Conversation(client, server, random.Random(choice.random()), one_in, cuts).start()


class _Conversation:
    """One client's connection: a thread for each direction."""

    def __init__(
        self, client: socket.socket, server: socket.socket, choice: random.Random, one_in: int, cuts: Any
    ) -> None:
        self.client, self.server = client, server
        self.choice, self.one_in, self.cuts = choice, one_in, cuts
        self.started = False
        self.in_transaction = False
        self.swallowing = False
        self.writing: set[bytes] = set()
        """The names of prepared statements that write."""
        self.executes_a_write = False

    def start(self) -> None:
        for pump in (self._requests, self._answers):
            threading.Thread(target=self._pumped, args=(pump,), daemon=True).start()

    def _pumped(self, pump: Any) -> None:
        with suppress(OSError):
            pump()
        self._close()

    def _close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _requests(self) -> None:
        rest = b""
        while data := self.client.recv(1 << 16):
            rest += data
            passed = b""
            while (message := _first(rest, self.started)) is not None:
                rest = rest[len(message) :]
                if self._is_commit(message) and self.choice.randrange(self.one_in) == 0:
                    self._cut(passed, message)
                    return
                passed += message
            self.server.sendall(passed)

    def _is_commit(self, message: bytes) -> bool:
        if not self.started:
            (code,) = struct.unpack_from("!i", message, 4)
            self.started = code not in _ENCRYPTION_REQUESTS
            return False
        kind, body = message[:1], message[5:]
        if kind == b"P":
            name, sql = body.split(b"\0")[:2]
            (self.writing.add if sql.startswith(_WRITES) else self.writing.discard)(name)
        elif kind == b"B":
            self.executes_a_write = body.split(b"\0")[1] in self.writing
        elif kind == b"S":
            wrote, self.executes_a_write = self.executes_a_write, False
            return wrote and not self.in_transaction
        return kind == b"Q" and body == b"COMMIT\0"

    def _cut(self, passed: bytes, commit: bytes) -> None:
        way = self.choice.randrange(len(NAMES))
        with self.cuts.get_lock():
            self.cuts[way] += 1
        if way == BEFORE:
            self._close()
        elif way == AFTER:
            self.swallowing = True
            self.server.sendall(passed + commit)
            self.client.recv(1)  # until the server has answered, which closes both
        else:
            self.server.sendall(passed + commit)
            self._close()

    def _answers(self) -> None:
        rest = b""
        while data := self.server.recv(1 << 16):
            if not self.started and data in (b"S", b"N"):
                self.client.sendall(data)
                continue
            rest += data
            passed = b""
            while (message := _first(rest, True)) is not None:
                rest = rest[len(message) :]
                passed += message
                if message[:1] == b"Z":
                    self.in_transaction = message[5:] != b"I"
                    if self.swallowing:
                        self._close()
                        return
            if not self.swallowing:
                self.client.sendall(passed)


def _first(data: bytes, typed: bool) -> bytes | None:
    """The first whole message; those before the start of a connection have no type."""
    head = 5 if typed else 4
    if len(data) < head:
        return None
    (length,) = struct.unpack_from("!i", data, head - 4)
    size = length + head - 4
    return data[:size] if len(data) >= size else None
