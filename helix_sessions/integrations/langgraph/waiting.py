"""Async calls on a thread of LangGraph, which are done together if they wait for their lane together.

A graph hands over what its tasks wrote, and right after it the next checkpoint. Where several graphs share a
lane, both wait there, and one transaction stores both.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from threading import Lock
from typing import Generic, TypeVar

from helix_sessions.integrations.langgraph import connections

C = TypeVar("C")
Errors = Sequence[BaseException | None]


class WaitingCalls(Generic[C]):
    """Calls by their thread, until `do(thread, calls)` does them: it returns the error of each, or `None`."""

    def __init__(self, alias: str, do: Callable[[str, list[C]], Errors]) -> None:
        self._alias = alias
        self._do = do
        self._lock = Lock()
        self._waiting: dict[tuple[asyncio.AbstractEventLoop, str], list[tuple[C, asyncio.Future[None]]]] = {}

    async def call(self, thread: str, call: C) -> None:
        """Do a call, and wait for it. One that is cancelled before it began is not done. Those that are done
        together are in the context of the first."""
        lane = await connections.lane_of(self._alias, thread)
        if lane is None:
            await connections.in_thread(self._alias, partial(self._alone, thread, call))
            return
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        with self._lock:
            waiting = self._waiting.setdefault((loop, thread), [])
            waiting.append((call, done))
        if len(waiting) == 1:
            lane.submit(copy_context().run, self._work_off, loop, thread)
        await done

    def _alone(self, thread: str, call: C) -> None:
        [error] = self._do(thread, [call])
        if error is not None:
            raise error

    def _work_off(self, loop: asyncio.AbstractEventLoop, thread: str) -> None:
        with self._lock:
            waiting = self._waiting.pop((loop, thread))
        waiting = [(call, done) for call, done in waiting if not done.cancelled()]
        if not waiting:
            return
        errors: Errors
        try:
            connections.prepare(self._alias)
            errors = self._do(thread, [call for call, _ in waiting])
        except BaseException as error:
            errors = [error] * len(waiting)
        loop.call_soon_threadsafe(_settle, [done for _, done in waiting], errors)


def _settle(calls: Sequence[asyncio.Future[None]], errors: Errors) -> None:
    for done, error in zip(calls, errors, strict=True):
        if done.cancelled():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
