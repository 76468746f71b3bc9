"""On which thread, and on which connection, a saver's calls run.

A graph's own threads come and go with each run: a connection that one of them opens is closed when the thread
ends, not after each call. Async calls run in threads of the event loop, several at once, where the database
lets several write at once. Those that name one thread of LangGraph run in the same one: a connection that
knows a session from its last write needs one statement for the next instead of four. Only where sync code
waits for the loop they run in its thread, which may be in a transaction.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from asgiref.sync import AsyncToSync, sync_to_async
from django.db import connections

R = TypeVar("R")


LANES = 8
"""So many calls run at once in an event loop."""

_open = threading.local()
_lanes: dict[asyncio.AbstractEventLoop, tuple[list[Executor], AsyncIterator[None]]] = {}


class _Closing:
    """Closes a thread's connection when the thread, whose local it is, ends."""

    def __init__(self, alias: str) -> None:
        self._connection = connections[alias]

    def __del__(self) -> None:
        self._connection.close()


def prepare(alias: str) -> None:
    """Before a call: a connection that failed is given up, and one that is opened will be closed."""
    connection = connections[alias]
    if connection.errors_occurred and not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()
    if threading.current_thread() is threading.main_thread():
        return
    closing = vars(_open)
    if alias not in closing:
        closing[alias] = _Closing(alias)


async def in_thread(alias: str, call: Callable[[], R], *, lane: str | None = None) -> R:
    """Run a call in another thread, and wait for it. Calls of one lane share their thread."""

    def connected() -> R:
        prepare(alias)
        return call()

    if not _has_threads(alias):
        return await sync_to_async(connected)()
    if lane is None:
        return await asyncio.to_thread(connected)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(await _lane(loop, lane), copy_context().run, connected)


async def lane_of(alias: str, lane: str) -> Executor | None:
    """The thread that calls of one lane share, where they run in threads of the event loop."""
    return await _lane(asyncio.get_running_loop(), lane) if _has_threads(alias) else None


def _has_threads(alias: str) -> bool:
    called_from_sync = getattr(AsyncToSync.executors, "current", None) is not None
    return connections[alias].features.has_select_for_update and not called_from_sync


async def _lane(loop: asyncio.AbstractEventLoop, lane: str) -> Executor:
    return (await _lanes_of(loop))[hash(lane) % LANES]


async def _lanes_of(loop: asyncio.AbstractEventLoop) -> list[Executor]:
    if loop not in _lanes:
        for other in [each for each in list(_lanes) if each.is_closed()]:
            _end(other)
        made: list[Executor] = [ThreadPoolExecutor(1, "langgraph-lane") for _ in range(LANES)]
        _lanes[loop] = made, _until_it_ends(loop)
        await anext(_lanes[loop][1])
    return _lanes[loop][0]


async def _until_it_ends(loop: asyncio.AbstractEventLoop) -> AsyncIterator[None]:
    """A loop that is ended properly closes the async generators that it has begun, and with this one its
    lanes; those of one that was only closed end when the next loop begins."""
    try:
        yield
    finally:
        _end(loop)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    lanes, _ = _lanes.pop(loop, ([], None))
    for lane in lanes:
        lane.shutdown()
