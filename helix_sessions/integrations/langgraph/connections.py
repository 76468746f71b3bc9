"""On which thread, and on which connection, a saver's calls run.

A graph's own threads come and go with each run: a connection that one of them opens is closed when the thread
ends, not after each call. Async calls run in the threads of the event loop, several at once, where the
database lets several write at once. Only where sync code waits for the loop they run in its thread, which may
be in a transaction.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from asgiref.sync import AsyncToSync, sync_to_async
from django.db import connections

R = TypeVar("R")


_open = threading.local()


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


async def in_thread(alias: str, call: Callable[[], R]) -> R:
    """Run a call in another thread, and wait for it."""

    def connected() -> R:
        prepare(alias)
        return call()

    several = connections[alias].features.has_select_for_update
    called_from_sync = getattr(AsyncToSync.executors, "current", None) is not None
    if called_from_sync or not several:
        return await sync_to_async(connected)()
    return await asyncio.to_thread(connected)
