"""A person, their session, and a worker that drives it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connections
from rest_framework.test import APIClient

from helix_sessions.api.frontends import following
from helix_sessions.runtime import SessionRunner, TurnContext
from helix_sessions.runtime.loop import lease_keeper
from helix_sessions.runtime.scripted import ScriptedAgent
from helix_sessions.store import SessionStore
from helix_sessions.stream.hub import hub
from helix_sessions.stream.tails import _Signal


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to stop are noticed sooner."""
    monkeypatch.setattr(lease_keeper, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr("helix_sessions.runtime.loop.io.GRACE_SECONDS", 0.2)


@pytest.fixture
def person(db: None) -> Any:
    """A participant: no permission at all."""
    return get_user_model().objects.create_user("pat", password="secret")


@pytest.fixture
def session(store: SessionStore, person: Any) -> str:
    store.create_session("s", agent_type="writer", owner=person)
    return "s"


@pytest.fixture
def api(person: Any) -> APIClient:
    client = APIClient()
    client.default_format = "json"
    client.force_authenticate(person)
    return client


@pytest.fixture
def worker(transactional_db: None) -> Iterator[Callable[..., None]]:
    """`worker(agent)` drives whatever is runnable with this agent, in a thread of its own, until the end."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def work(agent: Any, options: dict[str, Any]) -> None:
        runner = SessionRunner(agent, **options)
        try:
            while not over.is_set():
                runner.sweep()
                over.wait(0.02)
        finally:
            connections.close_all()

    def start(agent: Any, **options: Any) -> None:
        threads.append(threading.Thread(target=work, args=(agent, options), daemon=True))
        threads[-1].start()

    yield start
    over.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture
def quick_worker(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """`quick_worker(agent)`: whatever a request has made runnable is done before the request looks how the
    session stands."""
    look = following.standing

    def start(agent: Any) -> None:
        runner = SessionRunner(agent)

        def standing(*args: Any) -> Any:
            runner.sweep()
            return look(*args)

        monkeypatch.setattr(following, "standing", standing)

    return start


class Frames:
    """The data of a stream of server-sent events, one after the other."""

    def __init__(self, response: Any) -> None:
        assert response.status_code == 200, getattr(response, "content", response)
        assert response["Content-Type"] == "text/event-stream"
        self.response = response
        self._chunks = iter(response.streaming_content)
        self._ready: list[Any] = []
        self._rest = b""

    def __iter__(self) -> Frames:
        return self

    def __next__(self) -> Any:
        while not self._ready:
            *blocks, self._rest = (self._rest + next(self._chunks)).split(b"\n\n")
            texts = [block.removeprefix(b"data: ") for block in blocks if block.startswith(b"data: ")]
            self._ready = [text if text == b"[DONE]" else json.loads(text) for text in texts]
        return self._ready.pop(0)

    def until(self, kind: str) -> list[Any]:
        """What comes until a type, it included."""
        found: list[Any] = []
        while not (found and isinstance(found[-1], dict) and found[-1].get("type") == kind):
            found.append(next(self))
        return found

    def close(self) -> None:
        self.response.close()


class Speaking:
    """An agent that says a piece whenever it is let."""

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces
        self._may = threading.Semaphore(0)
        self.agent = ScriptedAgent([self.turn])

    def go(self, count: int = 1) -> None:
        for _ in range(count):
            self._may.release()

    def turn(self, turn: TurnContext) -> str:
        for piece in self._pieces:
            while not self._may.acquire(timeout=0.05):
                if turn.interrupted():
                    raise RuntimeError("stopped")
            turn.publish_fragment({"text": piece})
        while not self._may.acquire(timeout=0.05):
            if turn.interrupted():
                raise RuntimeError("stopped")
        return "".join(self._pieces)


def until_followed() -> None:
    """Let an agent wait until somebody follows what it says."""
    deadline = time.monotonic() + 20
    while not any(isinstance(watcher, _Signal) for watcher in hub._of(("default", "s"))):
        assert time.monotonic() < deadline
        time.sleep(0.005)
