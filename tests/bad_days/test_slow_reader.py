"""A live reader that does not read holds up nobody, costs little, and misses nothing when it goes on."""

import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from helix_sessions.store import SessionStore
from tests.servers import Server, http_server

pytestmark = pytest.mark.django_db(transaction=True)

EVENTS = 400
SIZE = 200_000


def test_a_reader_that_stops_reading(store: SessionStore, django_user_model: Any):
    user = django_user_model.objects.create_user("ada")
    client = Client()
    client.force_login(user)
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    store.create_session("s", agent_type="agent", owner=user)
    with http_server() as server, _stream(server, cookie) as reader:
        assert reader.recv(12) == b"HTTP/1.1 200"  # it is being served, and from now on nobody reads
        before = _memory(server)
        begun = time.monotonic()
        for number in range(EVENTS):
            store.emit_event("s", "note", {"n": number, "text": "x" * SIZE})
        seconds = time.monotonic() - begun
        grown = _memory(server) - before
        seen = _numbers(reader, EVENTS)

    assert grown < EVENTS * SIZE / 3, f"{grown:,} bytes are held for one slow reader"
    assert seconds < 60
    assert seen == list(range(EVENTS))


def _stream(server: Server, cookie: str) -> socket.socket:
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    reader.connect(("127.0.0.1", server.port))
    reader.settimeout(30)
    head = f"GET /api/sessions/s/events/stream/?after=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n"
    reader.sendall((head + "Accept: text/event-stream\r\n\r\n").encode())
    return reader


def _memory(server: Server) -> int:
    """The resident memory of the server's process."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def _numbers(reader: socket.socket, count: int) -> list[int]:
    """Which events came, in their order."""
    found: list[int] = []
    rest = b""
    while len(found) < count:
        data = reader.recv(1 << 20)
        assert data, "the stream ended"
        rest += data
        seen = [int(number) for number in re.findall(rb'"data":\{"n":(\d+),', rest)]
        found += seen
        if seen:
            rest = rest[rest.rindex(b'"data":{"n":') + 12 :]
    return found
