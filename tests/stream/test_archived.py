"""Readers of a log whose older part goes to the archive: what they would miss they are told."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import AsyncClient

from helix_sessions.exceptions import EventsArchived
from helix_sessions.store import AsyncSessionStore, SessionStore
from tests.stream.test_sse import STREAM, opened

pytestmark = pytest.mark.django_db(transaction=True)

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(autouse=True)
def archive(
    store: SessionStore, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., None]:
    """Archive all but the last five events of a session with fifty, or so many."""
    storage = {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(tmp_path)},
    }
    settings.STORAGES = {**settings.STORAGES, "archive": storage}
    settings.HELIX_SESSIONS = {"ARCHIVE_STORAGE": "archive", "STREAM_POLL_SECONDS": 0.02}
    monkeypatch.setattr("helix_sessions.stream.hub.SAFETY_POLL_SECONDS", 0.02)
    store.create_session("s", agent_type="a")
    for number in range(49):
        store.emit_event("s", "ticked", number)

    def archive_all_but(keep: int = 5) -> None:
        store.archive_events("s", keep=keep)

    return archive_all_but


def test_who_was_too_slow_is_told(store: SessionStore, archive: Callable[..., None]) -> None:
    with store.subscribe("s", after=0) as tail:
        assert [event.seq for event in islice(tail, 16)] == list(range(1, 17))
        archive()
        with pytest.raises(EventsArchived) as told:
            next(tail)
        assert told.value.first_available_seq == 46
        assert list(tail) == [], "it is over"
    with store.subscribe("s", after=45) as tail:
        assert [event.seq for event in islice(tail, 5)] == list(range(46, 51))


def test_also_when_nothing_is_left(store: SessionStore, archive: Callable[..., None]) -> None:
    archive(keep=0)
    with store.subscribe("s", after=10) as tail, pytest.raises(EventsArchived) as told:
        next(tail)
    assert told.value.first_available_seq == 51


def test_who_asks_for_all_gets_what_there_is(store: SessionStore, archive: Callable[..., None]) -> None:
    """As with `get_events` without a beginning."""
    archive()
    with store.subscribe("s", after=0) as tail:
        assert [event.seq for event in islice(tail, 5)] == list(range(46, 51))
    archive(keep=0)
    with store.subscribe("s", after=0) as tail, store.subscribe("s", after=50) as at_the_head:
        store.emit_event("s", "ticked")
        assert next(tail).seq == next(at_the_head).seq == 51


def test_on_an_event_loop(astore: AsyncSessionStore, archive: Callable[..., None], run_async: Run) -> None:
    async def main() -> None:
        async with astore.subscribe("s", after=1) as tail:
            assert (await anext(tail)).seq == 2
            await asyncio.to_thread(archive)
            with pytest.raises(EventsArchived):
                _ = [event async for event in tail]
            assert [event async for event in tail] == [], "it is told once, and over"

    run_async(main)


def test_over_http(archive: Callable[..., None], store: SessionStore, run_async: Run) -> None:
    user = get_user_model()._default_manager.create_superuser("reader", password="secret")

    async def main() -> None:
        client = AsyncClient()
        await client.aforce_login(user)
        reading = await opened(client, "?after=1")
        await asyncio.to_thread(archive)
        *_, closed = await reading.rest()
        assert (closed.event, closed.data["reason"]) == ("stream_closed", "events_archived")
        for query in ("?after=1", "?after=1&wait=5"):
            refused = await client.get(f"{STREAM}{query}", headers={"Accept": "application/json"})
            assert (refused.status_code, refused.json()["code"]) == (410, "events_archived")
        reading = await opened(client, "?after=0")
        assert (await reading.next()).id == "46"
        await reading.close()

    run_async(main)
