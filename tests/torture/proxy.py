"""Loopback proxies: one before PostgreSQL that cuts connections in the middle of a commit, one that is far.

The first reads the protocol: a commit is the query `COMMIT`, or outside a transaction the execution of a
statement that writes. It is cut before it reaches the server, after the server has answered it, or as soon as
it has been passed on, when nobody can say what will become of it.
"""

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.proxies import conversations, first_message, is_start, pass_on
from tests.torture.lanes import fork_context

BEFORE, AFTER, MEANWHILE = range(3)
NAMES = ("before the server had it", "after the server answered", "while the server was at it")
_WRITES = (b"WITH taken", b"INSERT", b"UPDATE", b"DELETE")


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
    for client, server in conversations(listener, target):
        pass_on(client, server, delay)
        pass_on(server, client, delay)


def _serve(listener: socket.socket, target: int, seed: int, one_in: int, cuts: Any) -> None:
    choice = random.Random(seed)
    for client, server in conversations(listener, target):
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
            while (message := first_message(rest, self.started)) is not None:
                rest = rest[len(message) :]
                if self._is_commit(message) and self.choice.randrange(self.one_in) == 0:
                    self._cut(passed, message)
                    return
                passed += message
            self.server.sendall(passed)

    def _is_commit(self, message: bytes) -> bool:
        if not self.started:
            self.started = is_start(message)
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
            while (message := first_message(rest, True)) is not None:
                rest = rest[len(message) :]
                passed += message
                if message[:1] == b"Z":
                    self.in_transaction = message[5:] != b"I"
                    if self.swallowing:
                        self._close()
                        return
            if not self.swallowing:
                self.client.sendall(passed)
