"""One implementation for sync and async callers: a generator that yields what has to be awaited.

Between two awaits its code is plain synchronous code that may use the database. In an event loop each such
stretch runs in Django's thread for synchronous work, and what it yields is awaited in the loop, so that no
thread is held while a model answers.
"""

from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

from asgiref.sync import async_to_sync, sync_to_async

T = TypeVar("T")
Steps = Generator[Awaitable[Any], Any, T]


def finish(steps: Steps[T]) -> T:
    """Go through it, waiting for each awaitable."""
    done, value = _advance(steps, None, None)
    while not done:
        answer, error = async_to_sync(_answer)(value)
        done, value = _advance(steps, answer, error)
    return value  # type: ignore[no-any-return]


async def afinish(steps: Steps[T]) -> T:
    """Go through it, awaiting each awaitable."""
    advance = sync_to_async(_advance)
    done, value = await advance(steps, None, None)
    while not done:
        answer, error = await _answer(value)
        done, value = await advance(steps, answer, error)
    return value  # type: ignore[no-any-return]


async def _answer(awaitable: Awaitable[Any]) -> tuple[Any, Exception | None]:
    try:
        return await awaitable, None
    except Exception as error:
        return None, error


def _advance(steps: Steps[T], answer: Any, error: Exception | None) -> tuple[bool, Any]:
    """Up to the next await: whether it is done, and its result or what to wait for."""
    try:
        return False, steps.send(answer) if error is None else steps.throw(error)
    except StopIteration as end:
        return True, end.value
