"""A loopback proxy before PostgreSQL: it counts what passes, and can make the way longer.

It runs in a process of its own, accepts connections from this machine only, and ends with its parent.
"""

import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tests.proxies import conversations, first_message, is_start, pass_on

_STATEMENTS = (b"Q", b"E")
"""Messages of the protocol that execute something: a simple query, and Execute."""


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
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ready.send(listener.getsockname()[1])
        for client, server in conversations(listener, target):
            counting = _Counting(counters)
            pass_on(client, server, delay, counting.asked)
            pass_on(server, client, delay, counting.answered)


class _Counting:
    """What one client sends: statements, and round trips."""

    def __init__(self, counters: Any) -> None:
        self.counters = counters
        self.rest = b""
        self.started = False
        self.asking = False

    def asked(self, data: bytes) -> None:
        statements = self._completed(data)
        with self.counters.get_lock():
            self.counters[0] += statements
            if data and not self.asking:
                self.counters[1] += 1
        self.asking = True

    def answered(self, data: bytes) -> None:
        self.asking = False

    def _completed(self, data: bytes) -> int:
        """How many statements the data completes."""
        self.rest += data
        statements = 0
        while (message := first_message(self.rest, self.started)) is not None:
            if self.started:
                statements += message[:1] in _STATEMENTS
            else:
                self.started = is_start(message)
            self.rest = self.rest[len(message) :]
        return statements
