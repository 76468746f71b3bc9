"""The servers that people deploy: streams and ordinary requests side by side, on a real database.

Under ASGI a stream stays open. Under WSGI it is a long poll, which the browser repeats: one that a worker of
its own serves, or a thread, or a greenlet.
"""

import time
from typing import Any

import httpx
import pytest

from helix_sessions.api import streams
from helix_sessions.store import SessionStore
from helix_sessions.stream import slots
from tests.parallel import run_threads
from tests.servers import UVICORN, Server, http_server
from tests.stream.frames import Parser

pytestmark = pytest.mark.django_db(transaction=True)

_GUNICORN = (
    *("gunicorn", "tests.wsgi:application", "--bind", "127.0.0.1:{port}", "--log-level", "warning"),
    *(
        "--keep-alive",
        "30",
    ),  # also how long gevent waits for a request after the connection, on a busy machine
)

SERVERS: dict[str, tuple[str, ...]] = {
    "gunicorn with threads": (*_GUNICORN, "--worker-class", "gthread", "--threads", "4"),
    "gunicorn with sync workers": (*_GUNICORN, "--worker-class", "sync", "--workers", "3"),
    "gunicorn with gevent": (*_GUNICORN, "--worker-class", "gevent"),
    "uvicorn": UVICORN,
    "daphne": ("daphne", "--port", "{port}", "--verbosity", "0", "tests.asgi:application"),
    "hypercorn": (
        "hypercorn",
        "--bind",
        "127.0.0.1:{port}",
        "--log-level",
        "warning",
        "tests.asgi:application",
    ),
}
PATH = "/api/sessions/s/events/stream/"
READERS = 4
"""As many as there are threads, and more than there are sync workers."""
MESSAGES = 10


@pytest.mark.parametrize("name", SERVERS)
def test_streams_and_requests_side_by_side(
    name: str, store: SessionStore, admin_user: Any, client: Any
) -> None:
    pytest.importorskip(SERVERS[name][0])
    store.create_session("s", agent_type="writer", owner=admin_user)
    client.force_login(admin_user)
    cookies = {"csrftoken": "t" * 32, "sessionid": client.cookies["sessionid"].value}
    with http_server(*SERVERS[name]) as server:
        found = run_threads(READERS + 1, lambda index: (_read if index < READERS else _talk)(server, cookies))
    *streams, statuses = found
    assert statuses == [201, 200] * MESSAGES
    assert streams == [list(range(2, 2 + MESSAGES))] * READERS


def _client(server: Server, cookies: dict[str, str]) -> httpx.Client:
    """A connection for each request. The server closes one that was idle for a while, two seconds with
    gunicorn, and a request that meets this is reset: a browser repeats it, httpx raises. So a reset here
    is a fault of the server."""
    alone = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(base_url=server.url, cookies=cookies, timeout=40, limits=alone)


def _talk(server: Server, cookies: dict[str, str]) -> list[int]:
    """Ordinary requests, one after another: the status of each."""
    found = []
    headers = {"X-CSRFToken": cookies["csrftoken"]}
    with _client(server, cookies) as client:
        for number in range(MESSAGES):
            body = {"messages": [{"role": "user", "content": str(number)}]}
            found.append(client.post("/api/sessions/s/messages/", json=body, headers=headers).status_code)
            found.append(client.get("/api/sessions/s/").status_code)
    return found


def _read(server: Server, cookies: dict[str, str]) -> list[int]:
    """As `EventSource` reads: the numbers of the messages, over as many connections as it takes."""
    seen: list[int] = []
    last, deadline = "1", time.monotonic() + 60
    with _client(server, cookies) as client:
        while len(seen) < MESSAGES and time.monotonic() < deadline:
            parser = Parser()
            with client.stream("GET", PATH, headers={"Last-Event-ID": last}) as answer:
                assert answer.status_code == 200, answer.read()
                for chunk in answer.iter_raw():
                    seen += [int(frame.id or 0) for frame in parser.feed(chunk) if frame.id]
                    if len(seen) >= MESSAGES:
                        break
            last = parser.last_id or last
            if len(seen) < MESSAGES:
                time.sleep((parser.retry or 0) / 1000)
    return seen


def test_a_process_holds_some_long_polls_and_sends_the_others_away(
    settings: Any, store: SessionStore, admin_user: Any, client: Any
) -> None:
    settings.HELIX_SESSIONS = {"STREAM_LONG_POLLS": 1}
    store.create_session("s", agent_type="writer", owner=admin_user)
    client.force_login(admin_user)
    held = slots.take(streams._HELD, 1)
    assert held is not None
    poll: dict[str, Any] = {"HTTP_ACCEPT": "application/json", "wsgi.multithread": True}
    answer = client.get(f"{PATH}?wait=20", **poll)
    assert (answer.json(), answer["Retry-After"]) == ({"items": [], "after": 1, "closed": False}, "3")
    held.release()
    waited = client.get(f"{PATH}?wait=0.1", **poll)
    assert waited.json()["items"] == []
    assert "Retry-After" not in waited
    assert client.get(f"{PATH}?wait=20", HTTP_ACCEPT="application/json")["Retry-After"] == "3"
