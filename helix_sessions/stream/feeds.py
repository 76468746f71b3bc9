"""Readers on an event loop: those of one session share one poke, one poll and one read."""

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Generator
from time import monotonic
from typing import Any, Generic, Self, TypeVar

from helix_sessions.stream.followers import Batch, Follower, Item, Source
from helix_sessions.stream.fragment_cursor import MOST_FRAGMENTS
from helix_sessions.stream.hub import Key, hub
from helix_sessions.stream.readers import readers
from helix_sessions.types import Fragment

T = TypeVar("T")

_feeds: "dict[asyncio.AbstractEventLoop, dict[Key, Feed]]" = {}


class Feed:
    """One session on one event loop. All but the watcher's methods run on that loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, source: Source) -> None:
        self.generation = 0
        self._loop = loop
        self._source = source
        self._seats: set[_Seat] = set()
        self._reads: dict[int, asyncio.Future[Batch | None]] = {}
        self._kept: asyncio.Future[list[Fragment]] | None = None
        self._poke_is_due = False
        self._poll: asyncio.TimerHandle | None = None
        hub.watch(source.key, self)

    @classmethod
    def of(cls, source: Source) -> "Feed":
        """The feed of a session on the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in _feeds:
            _forget_closed_loops()
        feeds = _feeds.setdefault(loop, {})
        if source.key not in feeds:
            feeds[source.key] = cls(loop, source)
        return feeds[source.key]

    # The hub's side, from any thread.

    def poke(self, first_seq: int | None) -> None:
        if first_seq is not None:
            for seat in tuple(self._seats):
                seat.first_seq = first_seq if seat.first_seq is None else min(seat.first_seq, first_seq)
        if not self._poke_is_due:
            self._poke_is_due = True
            self._call(self._advance)

    def offer(self, fragment: Fragment) -> None:
        self._call(self._share, fragment)

    def detach(self) -> None:
        self._call(self._empty)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop was closed with its readers still on it
            hub.abandon(self._source.key, self)

    # The loop's side.

    def join(self, seat: "_Seat") -> None:
        self._seats.add(seat)
        if self._poll is None:
            self._set_poll()

    def leave(self, seat: "_Seat") -> None:
        self._seats.discard(seat)
        if not self._seats:
            if self._poll is not None:
                self._poll.cancel()
                self._poll = None
            feeds = _feeds.get(self._loop, {})
            if feeds.get(self._source.key) is self:
                del feeds[self._source.key]
            if not feeds:
                _feeds.pop(self._loop, None)
            hub.unwatch(self._source.key, self)

    def abandon(self, seat: "_Seat") -> None:
        """Leave, from the garbage collector."""
        self._call(self.leave, seat)

    async def read(self, after: int) -> Batch | None:
        """The events after a number; concurrent readers of the same number share one read."""
        reading = self._reads.get(after)
        if reading is None:
            reading = asyncio.wrap_future(readers.submit(lambda: self._source.read(after)), loop=self._loop)
            self._reads[after] = reading
            reading.add_done_callback(lambda done: self._forget(after, done))
        return await asyncio.shield(reading)

    async def kept(self) -> list[Fragment]:
        """What is kept of the message under way; readers that ask at the same time share one read."""
        if self._kept is None or self._kept.done():
            self._kept = asyncio.wrap_future(readers.submit(self._source.kept), loop=self._loop)
            self._kept.add_done_callback(_consume)
        return await asyncio.shield(self._kept)

    def poll_interval(self) -> float:
        return hub.poll_interval(self._source.key[0])

    def _forget(self, after: int, reading: "asyncio.Future[Batch | None]") -> None:
        if self._reads.get(after) is reading:
            del self._reads[after]
        if not reading.cancelled():
            reading.exception()  # the waiting readers got it; without one it does not matter

    def _advance(self) -> None:
        """Reads that began before a poke may not have seen what it was for."""
        self._poke_is_due = False
        self._reads.clear()
        self.generation += 1
        for seat in tuple(self._seats):
            seat.wake()
        self._set_poll()

    def _set_poll(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
        self._poll = self._loop.call_later(self.poll_interval(), self._advance)

    def _share(self, fragment: Fragment) -> None:
        for seat in tuple(self._seats):
            seat.offer(fragment)

    def _empty(self) -> None:
        for seat in tuple(self._seats):
            if seat.detachable:
                seat.close()


def _forget_closed_loops() -> None:
    for loop in list(_feeds):
        if loop.is_closed():
            for key, feed in _feeds.pop(loop, {}).items():
                hub.unwatch(key, feed)


class _Seat:
    """A reader's place in a feed: what the feed knows of it, so that the reader itself can be collected."""

    def __init__(self, *, detachable: bool) -> None:
        self.detachable = detachable
        self.closed = False
        self.first_seq: int | None = None
        """The first event this process committed since the seat was taken."""
        self.follower: Follower | None = None
        self._early: deque[Fragment] = deque(maxlen=MOST_FRAGMENTS)
        """What came before the log was opened."""
        self._waiting: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def offer(self, fragment: Fragment) -> None:
        if self.follower is None:
            self._early.append(fragment)
        else:
            self.follower.offer(fragment)
            self.wake()

    def follow(self, follower: Follower) -> None:
        """The log is open."""
        self.follower = follower
        while self._early:
            follower.offer(self._early.popleft())

    def close(self) -> None:
        self.closed = True
        self.wake()

    async def wait(self, timeout: float | None) -> None:
        """Wait until it is woken, or until the timeout."""
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        timer = None if timeout is None else loop.call_later(timeout, self.wake)
        try:
            await self._waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()


class AsyncTail(Generic[T]):
    """`Tail` for event loops: an async iterator. Awaiting it first makes sure that the session exists.

    It starts when it is created. It has a place in the hub until it is closed (`aclose()`), exhausted or
    garbage collected.
    """

    def __init__(
        self,
        source: Source,
        render: Callable[[Item], T],
        *,
        after: int | None,
        fragments: bool = False,
        detachable: bool = True,
        came_back: bool = False,
    ) -> None:
        """`came_back`: the reader has seen the event `after`."""
        self._source = source
        self._render = render
        self._after = after
        self._came_back = came_back
        self._fragments = fragments
        self._ready: deque[T] = deque()
        self._seat = _Seat(detachable=detachable)
        self._feed = Feed.of(source)
        self._feed.join(self._seat)
        leave = weakref.finalize(self, self._feed.abandon, self._seat)
        leave.atexit = False
        self._opening = asyncio.wrap_future(readers.submit(source.open))
        self._opening.add_done_callback(_consume)

    def __await__(self) -> Generator[Any, None, Self]:
        yield from self._open().__await__()
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            items = await self.some()
            if items is None:
                raise StopAsyncIteration
            self._ready.extend(map(self._render, items))
        return self._ready.popleft()

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop, also in the middle of another task's wait."""
        self.close()

    def close(self) -> None:
        self._seat.close()
        self._feed.leave(self._seat)

    @property
    def after(self) -> int:
        """The last event that was read."""
        return 0 if self._seat.follower is None else self._seat.follower.after

    async def some(self, timeout: float | None = None) -> list[Item] | None:
        """Wait for the next events; nothing after a timeout, None at the end. `EventsArchived` once if the
        next events were archived before they were read."""
        seat, feed = self._seat, self._feed
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        follower = seat.follower or await self._open()
        while not (follower.ended or seat.closed):
            generation = feed.generation
            if follower.is_behind(generation):
                follower.take(await feed.read(follower.after), generation)
            if not follower.ended and monotonic() >= follower.look_at:
                follower.take_kept(await feed.kept(), feed.poll_interval())
            items = follower.drain()
            if items:
                return items
            if follower.ended or seat.closed or follower.is_behind(feed.generation):
                continue
            remaining = None if deadline is None else deadline - loop.time()
            if remaining is not None and remaining <= 0:
                return []
            await seat.wait(_sooner(remaining, follower.look_at - monotonic()))
        self.close()
        if follower.missed is not None:
            missed, follower.missed = follower.missed, None
            raise missed
        return None

    async def _open(self) -> Follower:
        if self._seat.follower is None:
            try:
                incarnation, head = await asyncio.shield(self._opening)
            except BaseException as error:
                if not isinstance(error, asyncio.CancelledError):
                    self.close()
                raise
            after = self._after
            if after is None:
                first = self._seat.first_seq
                after = head if first is None else min(head, first - 1)
            seen = after if self._came_back or after <= head else 0
            follower = Follower(after, incarnation, seen=seen, fragments=self._fragments)
            self._seat.follow(follower)
            return follower
        return self._seat.follower


def _sooner(remaining: float | None, look: float) -> float | None:
    if look == float("inf"):
        return remaining
    return max(0.0, look if remaining is None else min(remaining, look))


def _consume(opening: "asyncio.Future[Any]") -> None:
    if not opening.cancelled():
        opening.exception()  # it is raised where the reader is used; an unused one is no error
