"""The position of one reader, and what it has not seen yet. Threads and event loops share this."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from helix_sessions.exceptions import EventsArchived
from helix_sessions.stream.fragment_cursor import FragmentCursor
from helix_sessions.types import Fragment

BATCH = 200
"""How many events one read takes at most."""
FIRST_BATCH = 16
"""How many the first read takes, when the size of the events is unknown."""
BATCH_CHARACTERS = 1024 * 1024
"""About how much one read takes, unless one event is larger: a reader that is slow holds what it read."""


class Entry:
    """An event as it was read: its row (seq, type, data as text, turn, run, time)."""

    __slots__ = ("frame", "row", "seq")

    def __init__(self, row: Sequence[Any]) -> None:
        self.row = row
        self.seq: int = row[0]
        self.frame: bytes | None = None
        """Its frame on the wire, once one reader has built it; readers of one session share entries."""


Item: TypeAlias = Entry | Fragment


@dataclass(frozen=True, slots=True)
class Batch:
    """The outcome of a read."""

    incarnation: Any
    """Tells a session from another one that was later created under its id."""
    entries: list[Entry]
    head: int | None = None
    """The log's last event, where it is the newest there is: not on a replica, which may be behind."""
    is_last: bool = True
    """Whether there was nothing more to read."""


def next_batch(limit: int, entries: Sequence[Entry]) -> int:
    """How many events to read next, by how large those of a read of at most `limit` were."""
    size = sum(len(entry.row[2] or "") for entry in entries)
    if size > BATCH_CHARACTERS:
        return max(1, len(entries) * BATCH_CHARACTERS // size)
    return min(BATCH, limit * 2) if len(entries) == limit else limit


class Source(Protocol):
    """Reads a session's log; the caller provides it."""

    key: tuple[str, str]
    """The database alias and the session id."""

    def open(self) -> tuple[Any, int]:
        """The session's incarnation and its last event."""

    def read(self, after: int) -> Batch | None:
        """The next events after a number; None when the session is gone."""

    def kept(self) -> list[Fragment]:
        """What is kept of the message under way."""


class Follower:
    """A cursor over a session's log, with the fragments that arrived in between."""

    def __init__(self, after: int, incarnation: Any, *, seen: int, fragments: bool) -> None:
        """`seen`: the last event that has existed for certain; 0 if none."""
        self.after = after
        """The last event that was read."""
        self.ended = False
        self.missed: EventsArchived | None = None
        """Why it ended, if what comes next was archived before it was read."""
        self._incarnation = incarnation
        self._seen = seen
        self._seen_generation = -1
        self._entries: list[Entry] = []
        self.fragments = FragmentCursor() if fragments else None
        self._passed = after

    def offer(self, fragment: Fragment) -> None:
        """Keep a fragment for the reader, if it wants fragments."""
        if self.fragments is not None:
            self.fragments.offer(fragment)
            self._look_for_events_before()

    def take_kept(self, kept: Sequence[Fragment], poll_interval: float) -> None:
        """Accept what was kept of the message under way."""
        if self.fragments is not None:
            self.fragments.take(kept, poll_interval)
            self._look_for_events_before()

    def _look_for_events_before(self) -> None:
        if self.fragments is not None and self.fragments.newest > self.after:
            self.look_again()

    @property
    def look_at(self) -> float:
        """When to read what is kept; never, for a reader that wants no fragments."""
        return float("inf") if self.fragments is None else self.fragments.look_at

    def look_again(self) -> None:
        """Read once more, poked or not."""
        self._seen_generation = -1

    def is_behind(self, generation: int) -> bool:
        """Whether there may be new events since the last read."""
        return generation != self._seen_generation

    def take(self, batch: Batch | None, generation: int) -> None:
        """Accept what was read when `generation` had begun; None, or another log, is the end."""
        if batch is None or self._is_another(batch):
            self.ended = True
            return
        new = [entry for entry in batch.entries if entry.seq > self.after]
        first = new[0].seq if new else (batch.head or 0) + 1
        if 0 < self.after < first - 1:
            self.ended, self.missed = True, EventsArchived(first_available_seq=first)
            return
        if new:
            self._entries.extend(new)
            self.after = self._seen = new[-1].seq
        self._seen_generation = generation if batch.is_last else -1

    def _is_another(self, batch: Batch) -> bool:
        """Whether this is another log than the one read so far: of a new session under the same id, or of a
        database that was restored, or failed over, to before what was seen. Its next events would be taken
        for old."""
        return batch.incarnation != self._incarnation or (batch.head is not None and batch.head < self._seen)

    def drain(self) -> list[Item]:
        """Everything that can be handed out: events in order, each fragment after the event it followed."""
        entries, self._entries = self._entries, []
        if self.fragments is None:
            return list(entries)
        found: list[Item] = [*self.fragments.until(self._passed)]
        for entry in entries:
            found.append(entry)
            self._passed = entry.seq
            self.fragments.pass_by(entry)
            found.extend(self.fragments.until(entry.seq))
        return found
