"""The fragments of one reader: each once and in order, whichever way they come.

They come live, and under pressure some do not come; and they are read from where they are kept, a moment
later. Their indexes tell what is missing, what came already, and what comes too early.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from helix_sessions.messages.fragments import joined
from helix_sessions.types import Fragment

if TYPE_CHECKING:
    from helix_sessions.stream.followers import Entry

MOST_FRAGMENTS = 256
"""How many fragments wait for one reader. Of what comes then, pieces of a message are read again later, and
the others are dropped."""

_AGAIN = 0.1
"""Seconds until what is missing is looked for once more. It is written that often."""
_SETTLED = 0.25
"""Seconds after the first look until the second: what was published just before the first is kept by then."""
_PATIENCE = 2.0
"""Seconds until a reader goes on without what is missing."""
_ENDS_MESSAGE = frozenset(("assistant_message", "model_call_failed", "turn_finished"))
_MOST_ENDED = 16


class FragmentCursor:
    """What one reader has seen of the message under way, and what waits for it."""

    def __init__(self) -> None:
        self.look_at = monotonic()
        """When to read what is kept."""
        self._looks = 0
        self._ready: deque[Fragment] = deque()
        self._early: list[Fragment] = []
        """Pieces that came before those they follow."""
        self._early_since = 0.0
        self._message_id: str | None = None
        self._next = 0
        self._ended: dict[str, int] = {}
        """Turns and runs whose message is over, and the event that said so."""

    def offer(self, fragment: Fragment) -> None:
        """Take a fragment that came live."""
        if fragment.message_id is None or fragment.index is None:
            if len(self._ready) < MOST_FRAGMENTS:
                self._ready.append(fragment)
        elif self._is_over(fragment) or self._was_seen(fragment):
            return
        elif self._follows(fragment) and not self._early and len(self._ready) < MOST_FRAGMENTS:
            self._accept(fragment)
        else:
            now = monotonic()
            if not self._early:
                self._early_since = now
            if len(self._early) < MOST_FRAGMENTS:
                self._early.append(fragment)
            self.look_at = min(self.look_at, now + (_AGAIN if len(self._ready) else 0.0))

    def take(self, kept: Sequence[Fragment], poll_interval: float) -> None:
        """Take what is kept of the message under way, which was read just now."""
        if kept and not self._is_over(kept[0]) and (self._message_id or "") <= str(kept[0].message_id):
            if kept[0].message_id != self._message_id:
                self._message_id, self._next = kept[0].message_id, 0
            new = [fragment for fragment in kept if not self._was_seen(fragment)]
            if new:
                self._ready.extend(joined(new))
                self._next = (new[-1].index or 0) + 1
        newest = max((str(fragment.message_id) for fragment in self._early), default="")
        early = [fragment for fragment in self._early if fragment.message_id == newest]
        self._early = []
        now = monotonic()
        gives_up = bool(early) and now - self._early_since > _PATIENCE
        for fragment in early:
            if self._was_seen(fragment) or self._is_over(fragment):
                continue
            if gives_up or (self._follows(fragment) and not self._early):
                self._accept(fragment)
            else:
                self._early.append(fragment)
        self._looks += 1
        if self._early:
            self.look_at = now + _AGAIN
        else:
            self.look_at = now + (_SETTLED if self._looks == 1 else poll_interval)

    def pass_by(self, entry: "Entry") -> None:
        """The reader is told of an event: one that ends a message ends what was said of it."""
        kind, turn_id, run_id = entry.row[1], entry.row[3], entry.row[4]
        key = turn_id if kind in _ENDS_MESSAGE else run_id if kind == "run_finished" else None
        if key is None:
            return
        self._ended[key] = entry.seq
        while len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ready = deque(fragment for fragment in self._ready if not self._is_over(fragment))
        self._early = [fragment for fragment in self._early if not self._is_over(fragment)]

    def until(self, seq: int) -> Iterable[Fragment]:
        """What can be handed out to a reader that was told of the events up to a number."""
        while self._ready and self._ready[0].after_seq <= seq:
            yield self._ready.popleft()

    @property
    def newest(self) -> int:
        """The event that the last of what waits comes after."""
        return self._ready[-1].after_seq if self._ready else 0

    def _accept(self, fragment: Fragment) -> None:
        self._ready.append(fragment)
        self._message_id, self._next = fragment.message_id, (fragment.index or 0) + 1

    def _follows(self, fragment: Fragment) -> bool:
        expected = self._next if fragment.message_id == self._message_id else 0
        return fragment.index == expected

    def _was_seen(self, fragment: Fragment) -> bool:
        return fragment.message_id == self._message_id and (fragment.index or 0) < self._next

    def _is_over(self, fragment: Fragment) -> bool:
        if fragment.turn_id is None:
            return False
        run_id = fragment.turn_id.rpartition(":")[0]
        ends = (self._ended.get(fragment.turn_id, 0), self._ended.get(run_id, 0))
        return fragment.after_seq < max(ends)
