"""The output of an event stream for one reader: which events, in which format, and until when."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpResponse

from helix_sessions.api import private_state
from helix_sessions.api.responses import JSON_TYPE
from helix_sessions.conf import conf
from helix_sessions.exceptions import EventsArchived, SessionNotFound, StoreUnavailable
from helix_sessions.models.databases import sessions_database
from helix_sessions.store.transcript.events import event_text
from helix_sessions.store.transcript.subscriptions import SessionLog
from helix_sessions.stream import slots, sse
from helix_sessions.stream.feeds import AsyncTail
from helix_sessions.stream.followers import Entry, Item
from helix_sessions.stream.slots import Slot
from helix_sessions.stream.tails import Tail
from helix_sessions.stream.threads import release_request_thread

logger = logging.getLogger("helix_sessions.stream")

RETRY_SECONDS = 3.0
"""How long a browser waits before it reconnects. By default gunicorn closes an idle connection after two
seconds, and a request that is under way at that moment is reset."""

HEARTBEAT_SECONDS = 15.0
"""How long a stream is silent before it sends a comment, which keeps proxies from closing it."""

RECHECK_SECONDS = 30.0
"""How often an open stream checks that its user may still read the session."""

WAIT_SECONDS = 25.0
"""The longest duration of a long poll, and of other requests that wait."""

_RETRY_AFTER_POLL = 0.1
"""A reader of long polls reconnects at once."""

_SHORT_POLL = 2.0
"""How long a worker that serves one request at a time is held."""

_HELD = object()
"""The long polls that hold threads of this process, as if they were one user's."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The request of a reader, after authorization."""

    session_id: str
    after: int
    types: frozenset[str] | None
    run_id: str | None
    until: int | None
    """The last event of the run, if it is over."""
    named: bool
    as_json: bool
    wait: float | None
    """Seconds of a long poll; None is a stream."""
    hidden: tuple[str, ...] = ()
    """Keys of the state that this reader does not see."""
    headers: dict[str, str] = field(default_factory=dict)
    """What the answer says besides."""
    slot: Slot = field(repr=False)

    @property
    def log(self) -> SessionLog:
        return SessionLog(sessions_database(conf.API_DATABASE), self.session_id)


@dataclass
class Selection:
    """The items of a reader, as they come."""

    request: Request
    seen: int
    """The last event that was read."""
    sent: int
    """Where the reader would reconnect."""
    is_over: bool = False
    """Whether the run it was about has ended."""

    @classmethod
    def of(cls, request: Request) -> "Selection":
        return cls(request, request.after, request.after)

    def texts(self, items: Iterable[Item]) -> list[str]:
        return [self._text(entry) for entry in self._wanted(items) if isinstance(entry, Entry)]

    def frames(self, items: Iterable[Item]) -> bytes:
        found = []
        for item in self._wanted(items):
            if isinstance(item, Entry):
                found.append(self._frame(item))
                self.sent = item.seq
            else:
                found.append(sse.fragment(item))
        return b"".join(found)

    def heartbeat(self) -> bytes:
        """A comment; after events that were filtered out, the new place as well."""
        if self.seen == self.sent:
            return sse.HEARTBEAT
        self.sent = self.seen
        return sse.HEARTBEAT + sse.place(self.seen)

    def _frame(self, entry: Entry) -> bytes:
        if self.request.hidden and entry.row[1] == private_state.CARRIES_STATE:
            frame = sse.numbered(entry.seq, self._text(entry))
        else:
            if entry.frame is None:
                entry.frame = sse.numbered(entry.seq, self._text(entry))
            frame = entry.frame
        return sse.named(entry.row[1], frame) if self.request.named else frame

    def _text(self, entry: Entry) -> str:
        text = event_text(self.request.session_id, entry.row)
        return private_state.event_text(text, self.request.hidden)

    def _wanted(self, items: Iterable[Item]) -> Iterable[Item]:
        request = self.request
        for item in items:
            if self.is_over:
                return
            if not isinstance(item, Entry):
                yield item
                continue
            self.seen = item.seq
            if request.types is None or item.row[1] in request.types:
                yield item
            self.is_over = self._ends_with(item)

    def _ends_with(self, entry: Entry) -> bool:
        if self.request.until is not None:
            return entry.seq >= self.request.until
        ends_a_run = self.request.run_id is not None and entry.row[1] == "run_finished"
        return ends_a_run and entry.row[4] == self.request.run_id


class EventStream:
    """The frames of a stream, as long as the session exists and its reader may see it."""

    def __init__(self, request: Request, may_go_on: Callable[[], Awaitable[bool]]) -> None:
        self._request = request
        self._may_go_on = may_go_on
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tail: AsyncTail[Item] | None = None

    def close(self) -> None:
        """Release everything. The response calls this from another thread, streamed or not."""
        self._request.slot.release()
        if self._tail is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._tail.close)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        release_request_thread()
        self._loop = asyncio.get_running_loop()
        request = self._request
        self._tail = AsyncTail(
            request.log, _same, after=request.after, fragments=True, detachable=False, came_back=True
        )
        try:
            async for frames in self._frames(self._tail, Selection.of(request)):
                yield frames
        except SessionNotFound:
            yield sse.closed("session_deleted")
        except EventsArchived:
            yield sse.closed("events_archived")
        except (OperationalError, InterfaceError, StoreUnavailable) as error:
            # The reader reconnects, with its place.
            logger.warning("A stream ended: the database is unavailable (%s).", type(error).__name__)
        finally:
            self._tail.close()
            request.slot.release()

    async def _frames(self, tail: AsyncTail[Item], selection: Selection) -> AsyncIterator[bytes]:
        yield sse.retry(RETRY_SECONDS)
        check_at, silent_since = monotonic() + RECHECK_SECONDS, monotonic()
        while not selection.is_over:
            heartbeat_at = silent_since + HEARTBEAT_SECONDS
            items = await tail.some(max(0.0, min(heartbeat_at, check_at) - monotonic()))
            if items is None:
                yield sse.closed("session_deleted")
                return
            frames, now = selection.frames(items), monotonic()
            if not frames and now >= heartbeat_at:
                frames = selection.heartbeat()
            if frames:
                yield frames
                silent_since = now
            if now >= check_at:
                if not await self._may_go_on():
                    yield sse.closed("access_lost")
                    return
                check_at = monotonic() + RECHECK_SECONDS
        yield sse.closed("run_ended")


class LongPoll(HttpResponse):
    """An answer that Django awaits before it is sent, on the event loop, as it does with templates."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self._request = request

    async def render(self) -> HttpResponse:
        """The answer itself."""
        return await long_poll(self._request)


async def long_poll(request: Request) -> HttpResponse:
    """The events that are there, or the first one that arrives before the timeout."""
    release_request_thread()
    tail = AsyncTail(request.log, _same, after=request.after, detachable=False, came_back=True)
    try:
        answer = _Answer(request)
        with suppress(SessionNotFound, EventsArchived):
            while answer.remaining is not None:
                answer.add(await tail.some(answer.remaining))
        return answer.response()
    finally:
        tail.close()
        request.slot.release()


def long_poll_in_thread(request: Request, *, alone: bool) -> HttpResponse:
    """`long_poll` where there is no event loop, so that it keeps a thread from other requests.

    A few are held in a process, and briefly if it serves one request at a time (`alone`). The others are
    answered at once, and ask again a moment later.
    """
    held = slots.take(_HELD, conf.STREAM_LONG_POLLS)
    try:
        longest = 0.0 if held is None else _SHORT_POLL if alone else WAIT_SECONDS
        answer = _Answer(request, longest)
        with (
            suppress(SessionNotFound, EventsArchived),
            Tail(request.log, _same, after=request.after, came_back=True) as tail,
        ):
            while answer.remaining is not None:
                answer.add(tail.some(answer.remaining))
        return answer.response()
    finally:
        request.slot.release()
        if held is not None:
            held.release()


class _Answer:
    """Collects the response of a long poll."""

    def __init__(self, request: Request, longest: float = math.inf) -> None:
        self._request = request
        self._selection = Selection.of(request)
        wait = min(request.wait or 0.0, longest)
        self._retry = _RETRY_AFTER_POLL if wait == (request.wait or 0.0) else RETRY_SECONDS
        self._deadline = monotonic() + wait
        self._found: list[Any] = []
        self._is_deleted = False
        self.remaining: float | None = wait
        """The remaining seconds; None when the response is complete."""

    def add(self, items: list[Item] | None) -> None:
        if items is None:
            self._is_deleted = True
        elif self._request.as_json:
            self._found += self._selection.texts(items)
        else:
            self._found += [frames] if (frames := self._selection.frames(items)) else []
        now = monotonic()
        done = self._found or self._is_deleted or self._selection.is_over or now >= self._deadline
        self.remaining = None if done else self._deadline - now

    def response(self) -> HttpResponse:
        if self._request.as_json:
            after, items = self._selection.seen, ",".join(self._found)
            text = f'{{"items":[{items}],"after":{after},"closed":{str(self._closed is not None).lower()}}}'
            headers = {**self._request.headers, "Cache-Control": "no-store"}
            if self._retry >= 1:
                headers["Retry-After"] = f"{self._retry:.0f}"
            return HttpResponse(text.encode(), content_type=JSON_TYPE, headers=headers)
        last = sse.closed(self._closed) if self._closed else self._selection.heartbeat()
        body = b"".join([sse.retry(self._retry), *self._found, last])
        headers = {**self._request.headers, **sse.HEADERS}
        return HttpResponse(body, content_type=sse.CONTENT_TYPE, headers=headers)

    @property
    def _closed(self) -> str | None:
        if self._selection.is_over:
            return "run_ended"
        return "session_deleted" if self._is_deleted or self.remaining is not None else None


def _same(item: Item) -> Item:
    return item
