"""What an agent is given to run one turn."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async

from helix_sessions.runtime.loop.stops import Stop
from helix_sessions.store import SessionStore
from helix_sessions.types import JSON, ModelContext, Run, SessionState


class TurnContext:
    """One turn, as the agent sees it."""

    def __init__(
        self,
        *,
        store: SessionStore,
        run: Run,
        state: SessionState,
        context: ModelContext,
        stop: Stop,
        turn_id: str,
    ) -> None:
        self.session_id = run.session_id
        self.run = run
        self.state = state
        self.context = context
        """Exactly what to show the model."""
        self.turn_id = turn_id
        self._store = store
        self._stop = stop
        self._unfinished: list[asyncio.Future[Any]] = []
        self.wrote = False
        """Whether this turn has left something in the log."""

    def emit(self, type: str, data: JSON = None) -> Any:
        """Append an event to the log. From async code it returns at once, and what it returns may be
        awaited; the turn does not end before."""
        self.wrote = True
        return self._do(
            lambda: self._store.emit_event(
                self.session_id, type, data, turn_id=self.turn_id, run_id=self.run.run_id
            )
        )

    def publish_fragment(self, data: JSON) -> Any:
        """Show something to whoever reads along; it is not stored. As `emit` from async code."""
        return self._do(lambda: self._store.publish_fragment(self.session_id, data))

    def interrupted(self) -> bool:
        """Whether somebody asked to stop. An agent that takes long asks now and then, and returns."""
        if not self._stop.is_set() and not in_event_loop():
            request = self._store.peek_interrupt_flag(self.session_id)
            if request is not None:
                self._stop.set()
        return self._stop.is_set()

    def _do(self, call: Callable[[], Any]) -> Any:
        if not in_event_loop():
            return call()
        task = asyncio.ensure_future(sync_to_async(call)())
        self._unfinished.append(task)
        return task

    async def _after(self, awaitable: Awaitable[Any]) -> Any:
        """What the awaitable comes to, once all that it emitted is stored; errors of that are its own."""
        try:
            return await awaitable
        finally:
            while self._unfinished:
                await self._unfinished.pop(0)


def settling(function: Callable[..., Any], *arguments: Any, turn: TurnContext) -> Callable[[], Any]:
    """A call of the agent's code that ends when what it emitted is stored."""
    if inspect.iscoroutinefunction(function):

        async def awaited() -> Any:
            return await turn._after(function(*arguments))

        return awaited

    def called() -> Any:
        answer = function(*arguments)
        return turn._after(answer) if inspect.isawaitable(answer) else answer

    return called


def in_event_loop() -> bool:
    """Whether this code may not wait for the database, and has to await it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
