"""The watchers of a process: who waits for which session."""

import os
import threading
from collections import defaultdict, deque
from typing import Protocol, TypeAlias

from helix_sessions.conf import conf
from helix_sessions.stream.channel import Channel
from helix_sessions.types import Fragment

Key: TypeAlias = tuple[str, str]
"""A database alias and a session id."""

SAFETY_POLL_SECONDS = 15.0
"""The poll interval of a live reader where notifications of other processes arrive."""


class Watcher(Protocol):
    """Something that waits for a session. Every method may be called from any thread and must not block."""

    def poke(self, first_seq: int | None) -> None:
        """Look again. `first_seq` is the first new event, where this process wrote it."""

    def offer(self, fragment: Fragment) -> None:
        """Pass a fragment on, or drop it."""

    def detach(self) -> None:
        """End what the process itself holds."""


class Hub:
    """The watchers of a process, and for each PostgreSQL database the channel to other processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers: defaultdict[Key, set[Watcher]] = defaultdict(set)
        self._watched: defaultdict[str, int] = defaultdict(int)
        self._abandoned: deque[tuple[Key, Watcher]] = deque()
        self._channels: dict[str, Channel] = {}

    def watch(self, key: Key, watcher: Watcher) -> None:
        """Register, before the first read."""
        with self._lock:
            self._let_abandoned_go()
            if watcher not in self._watchers[key]:
                self._watchers[key].add(watcher)
                self._watched[key[0]] += 1
        self._channel(key[0]).look()

    def unwatch(self, key: Key, watcher: Watcher) -> None:
        """Leave. Idempotent."""
        with self._lock:
            self._let_abandoned_go()
            self._let_go(key, watcher)
        self._channel(key[0]).look()

    def abandon(self, key: Key, watcher: Watcher) -> None:
        """Leave, from the garbage collector, which may run while this thread is in here."""
        self._abandoned.append((key, watcher))

    def watched(self, alias: str) -> int:
        """How many watchers a database has."""
        if self._abandoned:
            with self._lock:
                self._let_abandoned_go()
        return self._watched.get(alias, 0)

    def _let_abandoned_go(self) -> None:
        while self._abandoned:
            self._let_go(*self._abandoned.popleft())

    def _let_go(self, key: Key, watcher: Watcher) -> None:
        watchers = self._watchers.get(key, set())
        if watcher in watchers:
            watchers.remove(watcher)
            self._watched[key[0]] -= 1
            if not watchers:
                del self._watchers[key]

    def announce(self, alias: str, session_id: str, first_seq: int | None) -> None:
        """This process has committed: poke the watchers here and in other processes."""
        self.poke(alias, session_id, first_seq)
        self._channel(alias).announce(session_id)

    def publish(self, alias: str, fragment: Fragment, text: str | None = None) -> None:
        """Pass a fragment to readers here and in other processes. `text`: its data, written."""
        self.offer(alias, fragment)
        self._channel(alias).publish(fragment, text)

    def poke(self, alias: str, session_id: str, first_seq: int | None = None) -> None:
        """Let the watchers of a session look again."""
        for watcher in self._of((alias, session_id)):
            watcher.poke(first_seq)

    def poke_all(self, alias: str) -> None:
        """Let all watchers look again: pokes may have been lost."""
        with self._lock:
            keys = [key for key in self._watchers if key[0] == alias]
            watchers = [watcher for key in keys for watcher in self._watchers[key]]
        for watcher in watchers:
            watcher.poke(None)

    def offer(self, alias: str, fragment: Fragment) -> None:
        for watcher in self._of((alias, fragment.session_id)):
            watcher.offer(fragment)

    def detach(self, alias: str, session_id: str) -> None:
        """End what this process holds for a session."""
        for watcher in self._of((alias, session_id)):
            watcher.detach()

    def poll_interval(self, alias: str) -> float:
        """How long a watcher waits for a poke before it polls."""
        if self._channel(alias).listening:
            return SAFETY_POLL_SECONDS
        return conf.STREAM_POLL_SECONDS

    def _of(self, key: Key) -> tuple[Watcher, ...]:
        if key not in self._watchers:
            return ()
        with self._lock:
            return tuple(self._watchers.get(key, ()))

    def _channel(self, alias: str) -> Channel:
        channel = self._channels.get(alias)
        if channel is None:
            with self._lock:
                channel = self._channels.setdefault(alias, Channel(alias, self))
        return channel


hub = Hub()


def _start_afresh() -> None:
    """A forked child has none of its parent's threads, so it has none of its watchers."""
    hub.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
