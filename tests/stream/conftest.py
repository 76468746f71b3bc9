"""What tests of live reading share."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from asgiref.sync import sync_to_async

T = TypeVar("T")


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    """Every reader leaves the hub: closed, exhausted or collected."""
    from django.db import DEFAULT_DB_ALIAS

    from helix_sessions.stream.hub import hub

    yield
    if hub.watched(DEFAULT_DB_ALIAS) or hub._watchers:
        gc.collect()  # which takes longer than most tests
    assert hub.watched(DEFAULT_DB_ALIAS) == 0
    assert hub._watchers == {}, "it keeps nothing for a session that nobody reads"


@pytest.fixture
def run_async() -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """Run a coroutine function on a loop of its own, and close what its threads opened."""
    from django.db import connections

    def run(main: Callable[[], Awaitable[T]]) -> T:
        async def all_of_it() -> T:
            try:
                return await asyncio.wait_for(main(), 60)
            finally:
                await sync_to_async(connections.close_all)()

        return asyncio.run(all_of_it())

    return run


@pytest.fixture
def slow_polls(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives in time was poked."""
    settings.HELIX_SESSIONS = {"STREAM_POLL_SECONDS": 600.0}
    monkeypatch.setattr("helix_sessions.stream.hub.SAFETY_POLL_SECONDS", 600.0)
