"""Counts of the contexts that this process has read since its start: for measurements, without content."""

import threading
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """How many, and how much together."""

    count: int = 0
    total: float = 0

    def add(self, amount: float) -> None:
        self.count += 1
        self.total += amount


@dataclass(slots=True)
class ContextTallies:
    """Of this process. Sources are told apart by their keys."""

    seconds: dict[str, Tally] = field(default_factory=dict)
    """How long each source took to observe."""
    unavailable: dict[str, int] = field(default_factory=dict)
    """How often each source was not available."""
    baselines: Tally = field(default_factory=Tally)
    """The characters of the baselines that were rendered."""
    updates: Tally = field(default_factory=Tally)
    """The characters of the updates that were told."""
    growths: Tally = field(default_factory=Tally)
    """How many characters of updates each baseline had gathered when the next one replaced it."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def observed(self, key: str, seconds: float, *, available: bool) -> None:
        with self._lock:
            self.seconds.setdefault(key, Tally()).add(seconds)
            self.unavailable[key] = self.unavailable.get(key, 0) + (not available)

    def rendered(self, characters: int, *, replaced: int | None) -> None:
        """A baseline; `replaced`: how much the one before it had grown."""
        with self._lock:
            self.baselines.add(characters)
            if replaced is not None:
                self.growths.add(replaced)

    def updated(self, characters: int) -> None:
        with self._lock:
            self.updates.add(characters)


tallies = ContextTallies()
