"""Follows the answer to a message until it is over, for any protocol: on an event loop, or in a thread."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Protocol

from django.core.handlers.asgi import ASGIRequest
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, StreamingHttpResponse

from helix_sessions.api import streams
from helix_sessions.conf import conf
from helix_sessions.exceptions import EventsArchived, RunNotFound, SessionNotFound, StoreUnavailable
from helix_sessions.messages.narration import Narrator, RunEnded, Told, error_text
from helix_sessions.models.databases import sessions_database
from helix_sessions.store import SessionStore
from helix_sessions.store.inbox.inbox import message_of
from helix_sessions.store.state import child_waits
from helix_sessions.store.state.pending_calls import unanswered
from helix_sessions.store.transcript.subscriptions import SessionLog, event_or_fragment
from helix_sessions.stream import sse
from helix_sessions.stream.feeds import AsyncTail
from helix_sessions.stream.followers import Item
from helix_sessions.stream.readers import readers
from helix_sessions.stream.slots import Slot
from helix_sessions.stream.tails import Tail
from helix_sessions.stream.threads import release_request_thread
from helix_sessions.types import SessionState

logger = logging.getLogger("helix_sessions.stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCall:
    """A call that a person or a client has to answer."""

    call_id: str
    name: str
    arguments: Any
    is_approval: bool
    is_own: bool
    """Of this session, not of one of its sub-agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a session stands when one of its runs has ended."""

    status: str
    is_under_way: bool
    error: str = ""
    waiting: tuple[WaitingCall, ...] = ()


class Front(Protocol):
    """How a protocol says it."""

    headers: dict[str, str]

    def begin(self) -> bytes: ...

    def tell(self, told: Told) -> bytes: ...

    def look(self, now: Standing) -> None:
        """Read what it needs to say how the session stands, in a thread that may."""

    def waits(self, calls: Iterable[WaitingCall]) -> bytes:
        """The answer goes on when these are answered."""

    def end(self, status: str, error: str) -> bytes:
        """The answer is over."""


@dataclass(kw_only=True)
class Answer:
    """What is followed: the answer to a message, from an event on."""

    session_id: str
    after: int
    front: Front
    slot: Slot = field(repr=False)
    input_id: str | None = None
    """The input whose promotion it begins with; `None`: it has begun."""
    replayed_to: int = 0
    """Up to here it is told again: what ended there has gone on since, if anything is under way."""
    ending: bytes | None = None
    """What it ends with at once, if nothing is under way."""
    is_over: bool = False

    def __post_init__(self) -> None:
        self.narrator = Narrator(self.input_id)

    @property
    def log(self) -> SessionLog:
        return SessionLog(sessions_database(conf.API_DATABASE), self.session_id)

    def tell(self, item: Item) -> tuple[bytes, Callable[[], Standing] | None]:
        """What an item says, and what has to be read before it goes on."""
        found = event_or_fragment(self.session_id, item)
        frames: list[bytes] = []
        for told in self.narrator.tell(found):
            if isinstance(told, RunEnded):
                self._ended, self._ended_at = told, getattr(found, "seq", 0)
                return b"".join(frames), partial(self._look, told.run_id)
            frames.append(self.front.tell(told))
        if self.narrator.is_cancelled:
            frames.append(self._finish(self.front.end("cancelled", "")))
        return b"".join(frames), None

    def _look(self, run_id: str | None) -> Standing:
        now = standing(self.session_id, run_id)
        self.front.look(now)
        return now

    def stand(self, now: Standing) -> bytes:
        """Go on, or end, after a run has ended."""
        status = self._ended.status
        told = self.narrator.calls
        if status.startswith("suspended_"):
            calls = [call for call in now.waiting if not call.is_own or call.call_id in told]
            return self._finish(self.front.waits(calls)) if calls else b""
        goes_on = self._ended_at <= self.replayed_to or (
            status == "interrupted" and now.status != "interrupted"
        )
        if goes_on and now.is_under_way:
            return b""
        return self._finish(self.front.end(status, now.error if status == "failed" else ""))

    def begin(self) -> bytes:
        if self.ending is None:
            return self.front.begin()
        return self.front.begin() + self._finish(self.ending)

    def _finish(self, frames: bytes) -> bytes:
        self.is_over = True
        return frames


def standing(session_id: str, run_id: str | None = None) -> Standing:
    """How a session stands now."""
    store = SessionStore(conf.API_DATABASE)
    state, occupancy = store.load_state(session_id), store.get_occupancy(session_id)
    error: Any = state.error
    if run_id is not None:
        with suppress(RunNotFound):  # it was pruned
            error = store.get_run(session_id, run_id).error or error
    waiting = tuple(waiting_calls(store, state))
    children = child_waits.waiting(state.suspended_awaiting_children or {})
    under_way = occupancy.run_id is not None or state.runnable_at is not None
    return Standing(
        status=state.status,
        is_under_way=under_way or (bool(children) and not waiting),
        error=error_text(error),
        waiting=waiting,
    )


def at_rest(session_id: str, input_id: str) -> Standing | None:
    """How a session stands that leaves an input pending, because nothing is under way; `None` if the input is
    taken, or was, and perhaps answered already: that is in the log for who follows."""
    now = standing(session_id)
    if now.is_under_way:
        return None
    pending = SessionStore(conf.API_DATABASE).list_inputs(session_id)
    return now if any(one.input_id == input_id for one in pending) else None


def has_ended_since(session_id: str, seq: int) -> bool:
    """Whether a run has ended after an event: then its end is in the log for who follows."""
    store = SessionStore(conf.API_DATABASE)
    return bool(store.get_events(session_id, seq + 1, types=["run_finished"], limit=1))


def pending_messages(store: SessionStore, session_id: str) -> list[dict[str, Any]]:
    """What was sent and not taken yet, as the messages that it becomes."""
    return [message_of(sent.input_id, sent.prompt) for sent in store.list_inputs(session_id)]


def waiting_calls(store: SessionStore, state: SessionState) -> Iterator[WaitingCall]:
    """The unanswered calls of a session and of its tree."""
    for call_id, entry in unanswered(state.pending_client_tool_calls):
        if isinstance(entry, dict):
            yield _waiting_call(call_id, entry, is_own=True)
    elsewhere: dict[str, list[str]] = {}
    done = state.completed_client_tool_calls or {}
    for call_id, owner in (state.client_tool_call_ownership or {}).items():
        if isinstance(owner, str) and owner != state.session_id and call_id not in done:
            elsewhere.setdefault(owner, []).append(call_id)
    for owner, call_ids in elsewhere.items():
        try:
            pending = dict(unanswered(store.load_state(owner).pending_client_tool_calls))
        except SessionNotFound:
            continue
        for call_id in call_ids:
            if isinstance(pending.get(call_id), dict):
                yield _waiting_call(call_id, pending[call_id], is_own=False)


def _waiting_call(call_id: str, entry: dict[str, Any], *, is_own: bool) -> WaitingCall:
    return WaitingCall(
        call_id=call_id,
        name=str(entry.get("tool_name", "")),
        arguments=entry.get("arguments"),
        is_approval=entry.get("kind") == "approval",
        is_own=is_own,
    )


def respond(
    request: HttpRequest, answer: Answer, may_go_on: Callable[[], Awaitable[bool]]
) -> StreamingHttpResponse:
    """The answer as the body of a response."""
    body: Any = AnswerStream(answer, may_go_on) if isinstance(request, ASGIRequest) else in_thread(answer)
    headers = sse.HEADERS | answer.front.headers
    return StreamingHttpResponse(body, content_type=sse.CONTENT_TYPE, headers=headers)


class AnswerStream:
    """The frames of an answer, on an event loop."""

    def __init__(self, answer: Answer, may_go_on: Callable[[], Awaitable[bool]]) -> None:
        self._answer = answer
        self._may_go_on = may_go_on
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tail: AsyncTail[Item] | None = None

    def close(self) -> None:
        """Release everything. The response calls this from another thread, streamed or not."""
        self._answer.slot.release()
        if self._tail is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._tail.close)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        release_request_thread()
        self._loop = asyncio.get_running_loop()
        answer = self._answer
        self._tail = AsyncTail(
            answer.log, _same, after=answer.after, fragments=True, detachable=False, came_back=True
        )
        try:
            async for frames in self._frames(self._tail):
                yield frames
        except (SessionNotFound, EventsArchived):
            yield answer.front.end("deleted", "The session is gone.")
        except (OperationalError, InterfaceError, StoreUnavailable) as error:
            logger.warning("A stream ended: the database is unavailable (%s).", type(error).__name__)
        finally:
            self._tail.close()
            answer.slot.release()

    async def _frames(self, tail: AsyncTail[Item]) -> AsyncIterator[bytes]:
        answer = self._answer
        yield answer.begin()
        check_at, silent_since = monotonic() + streams.RECHECK_SECONDS, monotonic()
        while not answer.is_over:
            heartbeat_at = silent_since + streams.HEARTBEAT_SECONDS
            items = await tail.some(max(0.0, min(heartbeat_at, check_at) - monotonic()))
            if items is None:
                yield answer.front.end("deleted", "The session is gone.")
                return
            frames = []
            for item in items:
                said, look = answer.tell(item)
                frames.append(said)
                if look is not None:
                    now = await asyncio.wrap_future(readers.submit(look))
                    frames.append(answer.stand(now))
                if answer.is_over:
                    break
            told, moment = b"".join(frames), monotonic()
            if not told and moment >= heartbeat_at:
                told = sse.HEARTBEAT
            if told:
                yield told
                silent_since = moment
            if moment >= check_at and not answer.is_over:
                if not await self._may_go_on():
                    yield answer.front.end("access_lost", "This session is no longer yours to see.")
                    return
                check_at = monotonic() + streams.RECHECK_SECONDS


def in_thread(answer: Answer) -> Iterator[bytes]:
    """The frames of an answer where there is no event loop. It takes the thread of its request."""
    front = answer.front
    try:
        with Tail(answer.log, _same, after=answer.after, fragments=True, came_back=True) as tail:
            yield answer.begin()
            while not answer.is_over:
                items = tail.some(streams.HEARTBEAT_SECONDS)
                if items is None:
                    yield front.end("deleted", "The session is gone.")
                    return
                if not items:
                    yield sse.HEARTBEAT
                for item in items:
                    said, look = answer.tell(item)
                    if look is not None:
                        said += answer.stand(look())
                    if said:
                        yield said
                    if answer.is_over:
                        return
    except (SessionNotFound, EventsArchived):
        yield front.end("deleted", "The session is gone.")
    finally:
        answer.slot.release()


def _same(item: Item) -> Item:
    return item
