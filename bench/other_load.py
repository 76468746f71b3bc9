"""How much of the machine other processes took during a run: what disturbs a benchmark."""

import multiprocessing
import os
from dataclasses import dataclass
from pathlib import Path

MOST = 0.1
"""Of the processors' time. A run that had to share more with others is not published."""

_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Clock:
    """Seconds of all processors since the machine started, and of our processes."""

    all: float
    busy: float
    ours: float

    @classmethod
    def read(cls) -> "Clock | None":
        """Now, or None where the system does not tell."""
        try:
            first = _STAT.read_text().split("\n", 1)[0]
        except OSError:
            return None
        user, nice, system, idle, iowait, irq, softirq, steal = (int(word) for word in first.split()[1:9])
        busy, tick = user + nice + system + irq + softirq + steal, os.sysconf("SC_CLK_TCK")
        return cls((busy + idle + iowait) / tick, busy / tick, _our_seconds())


def share_since(start: Clock | None) -> float | None:
    """The share of the processors' time since then that was not ours, or None where it is not known.

    Ours are this process and its children that have ended, the PostgreSQL server included: ask when it is
    stopped. The time of interrupts belongs to no process, so a quiet run has some too.
    """
    end = Clock.read()
    if start is None or end is None or end.all <= start.all:
        return None
    others = (end.busy - start.busy) - (end.ours - start.ours)
    return max(0.0, others) / (end.all - start.all)


def _our_seconds() -> float:
    multiprocessing.active_children()  # waits for those that have ended
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
