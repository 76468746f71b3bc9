"""The two ways a runner works: for synchronous callers, and on an event loop. One logic, written for both.

The runner's own code is async and awaits nothing but what is here. `Inline` never really waits, so a
synchronous caller runs that code to its end in one step, in its own thread and on its own connection.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Protocol, TypeVar, cast

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections

from helix_sessions.runtime.loop.stops import Stop, Stopped

T = TypeVar("T")

GRACE_SECONDS = 2.0
"""How long async code of the agent may go on after a request to stop, before it is cancelled."""


class IO(Protocol):
    """How a runner touches the world."""

    async def db(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """A short call to the store."""

    async def sleep(self, seconds: float) -> None: ...

    async def ask(self, call: Callable[[], Any], stop: Stop) -> Any:
        """Code of the agent, which may take as long as it likes."""

    async def ask_all(
        self, calls: Sequence[Callable[[], Any]], stop: Stop, settle: Callable[[int, Any], T]
    ) -> list[T]:
        """Several at once. As each one ends, `settle`, a short call to the store, is given its number and its
        result or the exception it raised; what that returned, in the order of the calls."""


class Inline:
    """In the caller's thread."""

    async def db(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        return call(*args, **options)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def ask(self, call: Callable[[], Any], stop: Stop) -> Any:
        answer = call()
        return async_to_sync(_stoppable)(answer, stop) if inspect.isawaitable(answer) else answer

    async def ask_all(
        self, calls: Sequence[Callable[[], Any]], stop: Stop, settle: Callable[[int, Any], T]
    ) -> list[T]:
        if len(calls) > 1:
            return async_to_sync(_all_in_threads)(calls, stop, settle)
        try:  # nothing is beside it, so it may as well use the caller's thread and connection
            result = await self.ask(calls[0], stop)
        except Exception as error:
            result = error
        return [settle(0, result)]


class OnLoop:
    """On the caller's event loop; the store in Django's thread for synchronous work."""

    async def db(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        return await sync_to_async(call)(*args, **options)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def ask(self, call: Callable[[], Any], stop: Stop) -> Any:
        return await _in_thread_or_here(call, stop, None)

    async def ask_all(
        self, calls: Sequence[Callable[[], Any]], stop: Stop, settle: Callable[[int, Any], T]
    ) -> list[T]:
        return await _all_in_threads(calls, stop, settle)


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine comes to that waits for nothing but `Inline`."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("The runner waited where nothing can be waited for.")


async def _all_in_threads(
    calls: Sequence[Callable[[], Any]], stop: Stop, settle: Callable[[int, Any], T]
) -> list[T]:
    """Each in a thread of its own, so that all begin at once."""
    threads = ThreadPoolExecutor(len(calls), thread_name_prefix="helix-tool")

    async def one(number: int, call: Callable[[], Any]) -> T:
        try:
            result = await _in_thread_or_here(call, stop, threads)
        except Exception as error:
            result = error
        return await sync_to_async(settle)(number, result)

    try:
        settled = await asyncio.gather(*map(one, range(len(calls)), calls), return_exceptions=True)
    finally:
        threads.shutdown(wait=False)
    for result in settled:
        if isinstance(result, BaseException):
            raise result
    return cast(list[T], settled)


async def _in_thread_or_here(call: Callable[[], Any], stop: Stop, threads: Executor | None) -> Any:
    """Plain code in a thread, async code on this loop."""
    if inspect.iscoroutinefunction(call):
        answer = call()
    else:
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(threads, copy_context().run, _in_thread, call)
    return await _stoppable(answer, stop) if inspect.isawaitable(answer) else answer


def _in_thread(call: Callable[[], T]) -> T:
    try:
        return call()
    finally:
        connections.close_all()


async def _stoppable(awaitable: Awaitable[T], stop: Stop) -> T:
    """Wait for it, and cancel it some time after a request to stop that it does not heed."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    task = asyncio.ensure_future(awaitable)

    def tell() -> None:
        loop.call_soon_threadsafe(asked.set)

    forget = stop.on_set(tell)
    waiting = asyncio.ensure_future(asked.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait({task}, timeout=GRACE_SECONDS)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_SECONDS)
        raise Stopped
    finally:
        forget()
        waiting.cancel()
        task.cancel()
