"""What loopback proxies before PostgreSQL share: whom they serve, how they pass on, what a message is."""

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue

_TIMER_SLACK = 0.00006
"""What Linux adds to a short sleep."""

_ENCRYPTION_REQUESTS = (80877103, 80877104)

Packets = SimpleQueue[tuple[float, bytes]]


def conversations(listener: socket.socket, target: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Each client's connection, with one to that port of this machine, until the parent process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal told the parent as well, which ends us
    parent = os.getppid()
    listener.settimeout(1.0)
    while os.getppid() == parent:
        try:
            client, _ = listener.accept()
            client.settimeout(None)
            server = socket.create_connection(("127.0.0.1", target))
        except (TimeoutError, ConnectionRefusedError):
            continue
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield client, server


def pass_on(
    source: socket.socket, sink: socket.socket, delay: float, heard: Callable[[bytes], None] = lambda _: None
) -> None:
    """Let threads send to one what the other says, so many seconds later, and tell of it when it is heard."""
    packets: Packets = SimpleQueue()
    threading.Thread(target=_receive, args=(source, packets, delay, heard), daemon=True).start()
    threading.Thread(target=_send, args=(packets, sink), daemon=True).start()


def _receive(source: socket.socket, packets: Packets, delay: float, heard: Callable[[bytes], None]) -> None:
    data = b"?"
    while data:
        try:
            data = source.recv(1 << 16)
        except OSError:
            data = b""
        due = time.perf_counter() + delay
        heard(data)
        packets.put((due, data))


def _send(packets: Packets, sink: socket.socket) -> None:
    with suppress(OSError):
        while True:
            due, data = packets.get()
            wait = due - time.perf_counter() - _TIMER_SLACK
            if wait > 0:
                time.sleep(wait)
            if not data:
                sink.shutdown(socket.SHUT_RDWR)
                return
            sink.sendall(data)


def first_message(data: bytes, started: bool) -> bytes | None:
    """The first whole message; those before the start of a conversation have no type."""
    head = 5 if started else 4
    if len(data) < head:
        return None
    (length,) = struct.unpack_from("!i", data, head - 4)
    size = length + head - 4
    return data[:size] if len(data) >= size else None


def is_start(message: bytes) -> bool:
    """Whether a message without a type begins the conversation, rather than ask for encryption."""
    (code,) = struct.unpack_from("!i", message, 4)
    return code not in _ENCRYPTION_REQUESTS
