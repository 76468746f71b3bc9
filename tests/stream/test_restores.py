"""The database is put back to an older state under live readers: they are told, they do not miss events."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import AsyncClient, Client

from helix_sessions.store import AsyncSessionStore, SessionStore
from tests.restores import Backup
from tests.stream.test_sse import STREAM, opened

pytestmark = pytest.mark.django_db(transaction=True)

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(autouse=True)
def _quick_polls(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.HELIX_SESSIONS = {"STREAM_POLL_SECONDS": 0.02}
    monkeypatch.setattr("helix_sessions.stream.hub.SAFETY_POLL_SECONDS", 0.02)


def emit(store: SessionStore, count: int) -> None:
    for number in range(count):
        store.emit_event("s", "ticked", number)


@pytest.fixture
def backup(store: SessionStore, tmp_path: Path) -> Backup:
    """Of a session with three events; it has eight by now."""
    store.create_session("s", agent_type="a")
    emit(store, 2)
    made = Backup(tmp_path)
    emit(store, 5)
    return made


def test_who_is_ahead_of_the_log_has_reached_its_end(store: SessionStore, backup: Backup) -> None:
    """It would have missed what is written next under the numbers it has seen already."""
    with store.subscribe("s", after=0) as tail, store.subscribe("s") as quiet:
        assert [event.seq for event in islice(tail, 8)] == list(range(1, 9))
        backup.restore()
        assert list(tail) == list(quiet) == []
    with store.subscribe("s") as tail:
        emit(store, 1)
        assert next(tail).seq == 4


def test_who_is_not_goes_on(store: SessionStore, backup: Backup) -> None:
    with store.subscribe("s", after=2) as behind, store.subscribe("s", after=100) as ahead:
        backup.restore()
        emit(store, 1)
        assert [event.seq for event in islice(behind, 2)] == [3, 4]
        assert ahead.some(0.05) == [], "it never saw what it waits for"


def test_on_an_event_loop(
    store: SessionStore, astore: AsyncSessionStore, backup: Backup, run_async: Run
) -> None:
    async def main() -> None:
        async with astore.subscribe("s", after=7) as tail:
            assert (await anext(tail)).seq == 8
            await asyncio.to_thread(backup.restore)
            assert [event async for event in tail] == []

    run_async(main)


@pytest.fixture
def user() -> Any:
    return get_user_model()._default_manager.create_superuser("reader", password="secret")


def test_over_http_who_comes_back_from_beyond_the_head_is_told(
    user: Any, backup: Backup, run_async: Run
) -> None:
    """Every server was restarted after the restore; the browser still knows where it was."""
    backup.restore()

    async def main() -> None:
        client = AsyncClient()
        await client.aforce_login(user)
        reading = await opened(client, "?after=0", **{"Last-Event-ID": "8"})
        [closed] = await reading.rest()
        assert (closed.event, closed.data["reason"]) == ("stream_closed", "session_deleted")
        headers = {"Accept": "application/json"}
        polled = await client.get(f"{STREAM}?after=8&wait=20", headers=headers)
        assert polled.json() == {"items": [], "after": 8, "closed": True}

    run_async(main)


def test_over_http_without_an_event_loop(user: Any, backup: Backup, client: Client) -> None:
    backup.restore()
    client.force_login(user)
    polled = client.get(f"{STREAM}?after=8&wait=20", headers={"Accept": "application/json"})

    assert polled.json() == {"items": [], "after": 8, "closed": True}
