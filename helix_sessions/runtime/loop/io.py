"""The two ways a runner works: for synchronous callers, and on an event loop. One logic, written for both.

The runner's own code is async and awaits nothing but what is here. `Inline` never really waits, so a
synchronous caller runs that code to its end in one step, in its own thread and on its own connection.
"""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections

from helix_sessions.runtime.loop.stops import Stop, Stopped
from helix_sessions.runtime.retries import CallTimedOut

T = TypeVar("T")

GRACE_SECONDS = 2.0
"""How long async code of the agent may go on after a request to stop, before it is cancelled."""


in_passing_loop: ContextVar[bool] = ContextVar("helix_sessions_passing_loop", default=False)
"""Whether the event loop is one that was made for this call alone: what is bound to it is gone afterwards."""


class Call(NamedTuple):
    """Code of the agent, and how many seconds it may take."""

    function: Callable[[], Any]
    timeout: float | None = None


class IO(Protocol):
    """How a runner touches the world."""

    async def db(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """A short call to the store."""

    async def sleep(self, seconds: float) -> None: ...

    async def wait(self, stop: Stop, seconds: float) -> None:
        """Sleep, unless there is a request to stop."""

    async def ask(self, call: Callable[[], Any], stop: Stop, timeout: float | None = None) -> Any:
        """Code of the agent, which may take as long as it likes, or so many seconds: `CallTimedOut`."""

    async def ask_all(self, calls: Sequence[Call], stop: Stop, settle: Callable[[int, Any], T]) -> list[T]:
        """Several at once. As each one ends, `settle`, a short call to the store, is given its number and its
        result or the exception it raised; what that returned, in the order of the calls."""


class Inline:
    """In the caller's thread."""

    async def db(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        return call(*args, **options)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def wait(self, stop: Stop, seconds: float) -> None:
        stop.wait(seconds)

    async def ask(self, call: Callable[[], Any], stop: Stop, timeout: float | None = None) -> Any:
        if timeout is not None and not inspect.iscoroutinefunction(call):
            answer = _in_time(call, timeout)
        else:
            answer = call()
        return _in_passing_loop(_stoppable, answer, stop, timeout) if inspect.isawaitable(answer) else answer

    async def ask_all(self, calls: Sequence[Call], stop: Stop, settle: Callable[[int, Any], T]) -> list[T]:
        if len(calls) > 1:
            return _in_passing_loop(_all_in_threads, calls, stop, settle)
        try:  # nothing is beside it, so it may as well use the caller's thread and connection
            result = await self.ask(calls[0].function, stop, calls[0].timeout)
        except Exception as error:
            result = error
        return [settle(0, result)]


class OnLoop:
    """On the caller's event loop; the store in Django's thread for synchronous work."""

    async def db(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        return await sync_to_async(call)(*args, **options)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, stop: Stop, seconds: float) -> None:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def tell() -> None:
            loop.call_soon_threadsafe(asked.set)

        forget = stop.on_set(tell)
        try:
            await asyncio.wait_for(asked.wait(), seconds)
        except TimeoutError:
            pass
        finally:
            forget()

    async def ask(self, call: Callable[[], Any], stop: Stop, timeout: float | None = None) -> Any:
        return await _in_thread_or_here(call, stop, None, timeout)

    async def ask_all(self, calls: Sequence[Call], stop: Stop, settle: Callable[[int, Any], T]) -> list[T]:
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


def _in_passing_loop(function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    token = in_passing_loop.set(True)
    try:
        return async_to_sync(function)(*arguments)
    finally:
        in_passing_loop.reset(token)


async def _all_in_threads(calls: Sequence[Call], stop: Stop, settle: Callable[[int, Any], T]) -> list[T]:
    """Each in a thread of its own, so that all begin at once."""
    threads = ThreadPoolExecutor(len(calls), thread_name_prefix="helix-tool")

    async def one(number: int, call: Call) -> T:
        try:
            result = await _in_thread_or_here(call.function, stop, threads, call.timeout)
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


async def _in_thread_or_here(
    call: Callable[[], Any], stop: Stop, threads: Executor | None, timeout: float | None
) -> Any:
    """Plain code in a thread, async code on this loop. A thread that takes too long is left behind."""
    if inspect.iscoroutinefunction(call):
        answer = call()
    else:
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(threads, copy_context().run, _in_thread, call)
        try:
            answer = await asyncio.wait_for(asyncio.shield(running), timeout)
        except TimeoutError as error:
            if running.done():
                raise
            running.add_done_callback(_forget)
            raise CallTimedOut(f"It took longer than {timeout} seconds.") from error
    return await _stoppable(answer, stop, timeout) if inspect.isawaitable(answer) else answer


def _forget(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()


def _in_thread(call: Callable[[], T]) -> T:
    try:
        return call()
    finally:
        connections.close_all()


def _in_time(call: Callable[[], T], timeout: float) -> T:
    """What a call returns in a thread of its own, which is left behind when it takes too long."""
    outcome: list[Any] = []
    context = copy_context()

    def work() -> None:
        try:
            outcome.append((context.run(_in_thread, call), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=work, name="helix-call", daemon=True)
    thread.start()
    thread.join(timeout)
    if not outcome:
        raise CallTimedOut(f"It took longer than {timeout} seconds.")
    answer, error = outcome[0]
    if error is not None:
        raise error
    return cast(T, answer)


async def _stoppable(awaitable: Awaitable[T], stop: Stop, timeout: float | None = None) -> T:
    """Wait for it, and cancel it when it takes too long, or some time after a request to stop that it does
    not heed."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    task = asyncio.ensure_future(awaitable)

    def tell() -> None:
        loop.call_soon_threadsafe(asked.set)

    forget = stop.on_set(tell)
    waiting = asyncio.ensure_future(asked.wait())
    try:
        await asyncio.wait({task, waiting}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and asked.is_set():
            await asyncio.wait({task}, timeout=0 if stop.at_once else GRACE_SECONDS)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_SECONDS)
        if asked.is_set():
            raise Stopped
        raise CallTimedOut(f"It took longer than {timeout} seconds.")
    finally:
        forget()
        waiting.cancel()
        task.cancel()
