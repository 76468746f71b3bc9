"""Where the agents of async frameworks run.

An async caller's agents run on the caller's own event loop. A synchronous caller has none, and one that was
made for each call would break what frameworks keep between calls: connections of their HTTP clients, locks,
servers of tools. So all synchronous callers of a process share one event loop that lasts, in its own thread.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections

from helix_sessions.runtime.loop.io import in_passing_loop
from helix_sessions.runtime.turn_context import TurnContext

T = TypeVar("T")


async def on_lasting_loop(function: Callable[[TurnContext], Awaitable[T]], turn: TurnContext) -> T:
    """What async code of a framework comes to, on an event loop that is still there for its next call."""
    if not in_passing_loop.get():
        return await function(turn)
    running = asyncio.run_coroutine_threadsafe(_separately(function, turn), _LOOP.get())
    return await asyncio.wrap_future(running)


async def _separately(function: Callable[[TurnContext], Awaitable[T]], turn: TurnContext) -> T:
    """With a thread of its own for Django's synchronous work, made when it is needed."""
    in_passing_loop.set(False)
    async with ThreadSensitiveContext() as context:
        try:
            settled: T = await turn.settled(function(turn))
            return settled
        finally:
            if context in SyncToAsync.context_to_thread_executor:
                await sync_to_async(connections.close_all)()


class _LastingLoop:
    """The event loop of this process, made when it is first needed; a forked process makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(target=self._loop.run_forever, name="helix-agents", daemon=True)
                thread.start()
            return self._loop


def _after_fork() -> None:
    global _LOOP
    _LOOP = _LastingLoop()


_LOOP = _LastingLoop()
os.register_at_fork(after_in_child=_after_fork)


class Threads(Executor):
    """A thread for each call of synchronous code, which gives its database connections back. A call that
    hangs holds up no other."""

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            finally:
                connections.close_all()

        threading.Thread(target=work, name="helix-tool", daemon=True).start()
        return future


THREADS = Threads()
