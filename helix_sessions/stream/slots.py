"""How many streams one user has open in this process."""

import os
import threading
import weakref
from collections.abc import Hashable

_lock = threading.Lock()
_open: dict[Hashable, set[object]] = {}


class Slot:
    """One open stream. It is released once: by `release`, or by the garbage collector."""

    def __init__(self, slots: set[object]) -> None:
        ticket = object()
        slots.add(ticket)
        # No lock here: the garbage collector may run while this very thread holds it.
        self.release = weakref.finalize(self, slots.discard, ticket)
        self.release.atexit = False


def take(user: Hashable, most: int) -> Slot | None:
    """A slot for one more stream of a user; `None` at the limit."""
    with _lock:
        for idle in [other for other, slots in _open.items() if not slots and other != user]:
            del _open[idle]
        slots = _open.setdefault(user, set())
        return Slot(slots) if len(slots) < most else None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open.clear)
