"""A receiver of webhooks on this machine, and a clock that tests set."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.conf import Conf
from helix_sessions.store import SessionStore


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: str


@dataclass
class Receiver:
    """What was received, and how it is answered."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    answer: Callable[[Request], int] = lambda request: 204
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def ids(self) -> list[str]:
        return [request.headers["webhook-id"] for request in self.requests]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.path, headers, body)
            found.requests.append(request)
            self.send_response(found.answer(request))
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}/hook"
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture
def _private_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conf, "WEBHOOK_ALLOW_PRIVATE", True)


class Clock:
    def __init__(self) -> None:
        self.now = timezone.now()

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(timezone, "now", found)
    return found


def finish_runs(store: SessionStore, session_id: str, *run_ids: str) -> None:
    """Each an event `run.finished`."""
    if not store.session_exists(session_id):
        store.create_session(session_id, agent_type="writer")
    for run_id in run_ids:
        store.create_run(session_id, run_id=run_id)
        store.update_run_status(session_id, run_id, "completed")
