"""Where one reader is, and what it has yet to see. Threads and event loops share this."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from helix_sessions.exceptions import EventsArchived
from helix_sessions.types import Fragment

BATCH = 200
"""How many events one read takes at most."""
FIRST_BATCH = 16
"""How many the first one takes, when nobody knows yet how large they are."""
BATCH_CHARACTERS = 1024 * 1024
"""About how much one read takes, unless one event is larger: a reader that is slow holds what it read."""
MOST_FRAGMENTS = 256
"""How many fragments wait for one reader; what comes then is dropped."""


class Entry:
    """An event as it was read: its row (seq, type, data as text, turn, run, time)."""

    __slots__ = ("frame", "row", "seq")

    def __init__(self, row: Sequence[Any]) -> None:
        self.row = row
        self.seq: int = row[0]
        self.frame: bytes | None = None
        """How it is sent, once somebody worked it out; readers of one session share entries."""


Item: TypeAlias = Entry | Fragment


@dataclass(frozen=True, slots=True)
class Batch:
    """What a read found."""

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
    """A session's log, as whoever made the reader reads it."""

    key: tuple[str, str]
    """The database alias and the session id."""

    def open(self) -> tuple[Any, int]:
        """The session's incarnation and its last event."""

    def read(self, after: int) -> Batch | None:
        """The next events after a number; None when the session is gone."""


class Follower:
    """A cursor over a session's log, with the fragments that arrived in between."""

    def __init__(self, after: int, incarnation: Any, *, seen: int, fragments: bool) -> None:
        """`seen`: the last event that is known to have been there; 0 if none is."""
        self.after = after
        """The last event that was read."""
        self.ended = False
        self.missed: EventsArchived | None = None
        """Why it ended, if what comes next was archived before it was read."""
        self._incarnation = incarnation
        self._seen = seen
        self._seen_generation = -1
        self._entries: list[Entry] = []
        self._fragments: deque[Fragment] | None = deque() if fragments else None
        self._passed = after

    def offer(self, fragment: Fragment) -> None:
        """Keep a fragment for the reader, if it wants fragments and there is room."""
        if self._fragments is None or len(self._fragments) >= MOST_FRAGMENTS:
            return
        self._fragments.append(fragment)
        if fragment.after_seq > self.after:
            self.look_again()

    def look_again(self) -> None:
        """Read once more, poked or not."""
        self._seen_generation = -1

    def is_behind(self, generation: int) -> bool:
        """Whether something may have happened since the last read."""
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
        """Whether this is not the log that was read so far: of another session under its id, or of a database
        that was put back, or failed over, to before what was seen. Its next events would be taken for old."""
        return batch.incarnation != self._incarnation or (batch.head is not None and batch.head < self._seen)

    def drain(self) -> list[Item]:
        """Everything that can be handed out: events in order, each fragment after the event it followed."""
        entries, self._entries = self._entries, []
        if not self._fragments:
            self._passed = self.after
            return list(entries)
        found: list[Item] = []
        for entry in entries:
            found.extend(self._fragments_until(self._passed))
            found.append(entry)
            self._passed = entry.seq
        found.extend(self._fragments_until(self._passed))
        return found

    def _fragments_until(self, seq: int) -> list[Fragment]:
        found = []
        while self._fragments and self._fragments[0].after_seq <= seq:
            found.append(self._fragments.popleft())
        return found
