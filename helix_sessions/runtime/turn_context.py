"""What an agent is given to run one turn."""

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async

from helix_sessions.exceptions import Fenced
from helix_sessions.runtime.loop.stops import Stop
from helix_sessions.store import SessionStore
from helix_sessions.store.transcript.fragments import MessageStream, said
from helix_sessions.types import JSON, EventRecord, ModelContext, Run, SessionState
from helix_sessions.values.agents import AgentDefinition, AgentSession, Budget

_current: ContextVar["TurnContext"] = ContextVar("helix_sessions_turn")


def current_turn() -> "TurnContext":
    """The turn that the running code is part of: in an agent, in its tools, in their threads and tasks.
    Outside a turn it raises `LookupError`."""
    return _current.get()


@dataclass(slots=True)
class _Traces:
    """What a turn has left behind so far."""

    unfinished: list["asyncio.Future[Any]"]
    fragments: list[str]
    wrote: bool = False
    closed: bool = False
    saw_stop: bool = False


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
        definition: AgentDefinition,
        budget: Budget | None = None,
        session: AgentSession | None = None,
        is_asked: Callable[[], bool] | None = None,
        stream: MessageStream | None = None,
    ) -> None:
        self.session_id = run.session_id
        self.run = run
        self.state = state
        self.context = context
        """Exactly what to show the model."""
        self.turn_id = turn_id
        self.definition = definition
        """The agent of the session as it is defined at this turn: model, system prompt, budget, metadata."""
        self.budget = Budget() if budget is None else budget
        """What is left of the budget: each limit as it is now, `None` where there is none."""
        self.session = session
        """In a `SendMessage`, the session with all that was said so far."""
        self.idempotency_key: str | None = None
        """In a tool: a text that is the same for every attempt of this call, and for no other call."""
        self.tool_call_id: str | None = None
        """In a tool: the id of its call."""
        self.tool_name: str | None = None
        self.approved = False
        """In a tool: whether a person, a rule or the options of the tool have approved this call."""
        self._store = store
        self._stop = stop
        self._is_asked = is_asked
        self._stream = stream
        self._traces = _Traces([], [])
        self._home: asyncio.AbstractEventLoop | None = None
        """The event loop that waits for the agent's code, whose thread has the driver's connection."""

    @property
    def wrote(self) -> bool:
        """Whether this turn has left something in the log."""
        return self._traces.wrote

    @property
    def said_so_far(self) -> str:
        """The text of the fragments that were published."""
        return "".join(self._traces.fragments)

    @property
    def saw_stop(self) -> bool:
        """Whether the agent asked if it is to stop, and was told so."""
        return self._traces.saw_stop

    def for_call(self, key: str, call: Mapping[str, Any], *, approved: bool = False) -> "TurnContext":
        """The turn as one of its tools sees it."""
        view = copy.copy(self)
        view.idempotency_key = key
        view.tool_call_id, view.tool_name, view.approved = call["id"], call["name"], approved
        view._traces = _Traces([], [])
        view._stream = None  # the message is said when its tools run
        return view

    def close(self) -> None:
        """Let code that was left behind write nothing any more."""
        self._traces.closed = True

    @property
    def store(self) -> SessionStore:
        """The store of the session, which refuses writes when another owner drives it."""
        return self._store

    @property
    def using(self) -> str:
        """The alias of the session's database."""
        return self._store.using

    def emit(self, type: str, data: JSON = None) -> Any:
        """Append an event to the log. From async code it returns at once, and what it returns may be
        awaited; the turn does not end before."""
        self._traces.wrote = True
        return self._do(lambda: self._emit(type, data))

    def _emit(self, type: str, data: JSON) -> EventRecord:
        event = self._store.emit_event(
            self.session_id, type, data, turn_id=self.turn_id, run_id=self.run.run_id
        )
        if self._stream is not None:
            self._stream.after_seq = max(self._stream.after_seq, event.seq)
        return event

    def publish_fragment(self, data: JSON) -> Any:
        """Show something to those who read along: a piece of the message, kept until the message is
        committed. In async code it may be awaited; it takes no time."""
        if self._traces.closed:
            raise Fenced(f"The turn {self.turn_id!r} is over.")
        is_said = self._stream is not None and self._stream.publish(data)
        is_of_message = is_said or self._stream is None
        if is_of_message and isinstance(data, dict) and isinstance(data.get("text"), str):
            self._traces.fragments.append(data["text"])
        if not is_said:
            return self._do(lambda: self._store.publish_fragment(self.session_id, data))
        return said() if in_event_loop() else None

    def interrupted(self) -> Any:
        """Whether the session was asked to stop. An agent that takes long asks now and then, and returns what
        it has: that is kept as interrupted, without its tool calls. In async code it may be awaited."""
        waits = not in_event_loop()
        if waits and self._is_asked is not None and not self._stop.is_set() and self._is_asked():
            self._stop.set()
        told = self._stop.is_set()
        self._traces.saw_stop |= told
        return told if waits else _Flag(told)

    def _do(self, call: Callable[[], Any]) -> Any:
        if self._traces.closed:
            raise Fenced(f"The turn {self.turn_id!r} is over.")
        if not in_event_loop():
            return call()
        stored = sync_to_async(call)()
        task: asyncio.Future[Any]
        if self._home is None or self._home is asyncio.get_running_loop():
            task = asyncio.ensure_future(stored)
        else:
            task = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(stored, self._home))
        self._traces.unfinished.append(task)
        return task

    async def _after(self, awaitable: Awaitable[Any]) -> Any:
        """What the awaitable comes to, once all that it emitted is stored; errors of that are its own."""
        self._home = asyncio.get_running_loop()
        return await self.settled(awaitable)

    async def settled(self, awaitable: Awaitable[Any]) -> Any:
        """What the awaitable comes to, once all that it emitted from this event loop is stored."""
        try:
            return await awaitable
        finally:
            while self._traces.unfinished:
                await self._traces.unfinished.pop(0)


class _Flag(int):
    """A truth value that may be awaited."""

    def __await__(self) -> Generator[Any, Any, bool]:
        return bool(self)
        yield


def settling(function: Callable[..., Any], *arguments: Any, turn: TurnContext) -> Callable[[], Any]:
    """A call of the agent's code that ends when what it emitted is stored. It finds its turn as the current
    one."""
    if inspect.iscoroutinefunction(function):

        async def awaited() -> Any:
            _current.set(turn)
            return await turn._after(function(*arguments))

        return awaited

    def called() -> Any:
        token = _current.set(turn)
        try:
            answer = function(*arguments)
        finally:
            _current.reset(token)
        return _awaited(turn, answer) if inspect.isawaitable(answer) else answer

    return called


async def _awaited(turn: TurnContext, answer: Awaitable[Any]) -> Any:
    _current.set(turn)
    return await turn._after(answer)


def in_event_loop() -> bool:
    """Whether this code may not wait for the database, and has to await it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
