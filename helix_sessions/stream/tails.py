"""A reader in a thread: the iterator behind `SessionStore.subscribe`."""

import threading
import weakref
from collections import deque
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from helix_sessions.stream.followers import Follower, Item, Source
from helix_sessions.stream.fragment_cursor import MOST_FRAGMENTS
from helix_sessions.stream.hub import hub
from helix_sessions.types import Fragment

T = TypeVar("T")


class Tail(Generic[T]):
    """The events after a number of a session's log, then new ones; ends when the session is deleted.

    An iterator. It has a place in the hub until it is closed, exhausted or garbage collected; use it in a
    `with` block, or call `close()`, which any thread may do.
    """

    def __init__(
        self,
        source: Source,
        render: Callable[[Item], T],
        *,
        after: int | None,
        fragments: bool = False,
        came_back: bool = False,
    ) -> None:
        """`came_back`: the reader has seen the event `after`."""
        self._source = source
        self._render = render
        self._ready: deque[T] = deque()
        self._signal = _Signal(wants_fragments=fragments)
        hub.watch(source.key, self._signal)
        leave = weakref.finalize(self, hub.abandon, source.key, self._signal)
        leave.atexit = False
        try:
            incarnation, head = source.open()
        except BaseException:
            self.close()
            raise
        after = head if after is None else after
        seen = after if came_back or after <= head else 0
        self._follower = Follower(after, incarnation, seen=seen, fragments=fragments)
        self._read_at = 0.0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while not self._ready:
            items = self.some()
            if items is None:
                raise StopIteration
            self._ready.extend(map(self._render, items))
        return self._ready.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop, also in the middle of a wait in another thread."""
        self._signal.detach()
        hub.unwatch(self._source.key, self._signal)

    def some(self, timeout: float | None = None) -> list[Item] | None:
        """Wait for the next events; nothing after a timeout, None at the end. `EventsArchived` once if the
        next events were archived before they were read."""
        deadline = float("inf") if timeout is None else monotonic() + timeout
        follower, signal = self._follower, self._signal
        while not (follower.ended or signal.closed):
            for fragment in signal.take_fragments():
                follower.offer(fragment)
            generation = signal.generation
            if follower.is_behind(generation):
                self._read_at = monotonic()
                follower.take(self._source.read(follower.after), generation)
            poll_interval = hub.poll_interval(self._source.key[0])
            if not follower.ended and monotonic() >= follower.look_at:
                follower.take_kept(self._source.kept(), poll_interval)
            items = follower.drain()
            if items:
                return items
            if follower.ended or follower.is_behind(generation):
                continue
            look = self._read_at + poll_interval
            if monotonic() >= deadline:
                return []
            signal.wait(generation, min(look, deadline, follower.look_at) - monotonic())
            if monotonic() >= look:
                follower.look_again()
        self.close()
        if follower.missed is not None:
            missed, follower.missed = follower.missed, None
            raise missed
        return None


class _Signal:
    """What the hub holds for a tail: room for one poke and a few fragments."""

    def __init__(self, *, wants_fragments: bool) -> None:
        self.generation = 0
        self.closed = False
        self._condition = threading.Condition()
        self._fragments: deque[Fragment] = deque()
        self._room = MOST_FRAGMENTS if wants_fragments else 0

    def poke(self, first_seq: int | None) -> None:
        with self._condition:
            self.generation += 1
            self._condition.notify_all()

    def offer(self, fragment: Fragment) -> None:
        with self._condition:
            if len(self._fragments) < self._room:
                self._fragments.append(fragment)
                self._condition.notify_all()

    def detach(self) -> None:
        with self._condition:
            self.closed = True
            self._condition.notify_all()

    def take_fragments(self) -> list[Fragment]:
        with self._condition:
            fragments = list(self._fragments)
            self._fragments.clear()
        return fragments

    def wait(self, generation: int, seconds: float) -> Any:
        """Wait until it is poked beyond `generation`, gets a fragment or is closed."""
        with self._condition:
            return self._condition.wait_for(
                lambda: self.closed or self._fragments or self.generation != generation, max(0.0, seconds)
            )
