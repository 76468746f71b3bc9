"""Ids of sessions and runs."""

import os
import threading
import time
import uuid

_lock = threading.Lock()
_last_tick = 0


def new_id() -> str:
    """A UUIDv7: unique, and sorting by time; those of one process sort in the order they were made."""
    milliseconds, fraction = divmod(_next_tick(), 1 << 12)
    random = int.from_bytes(os.urandom(8), "big") >> 2
    return str(uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | random))


def _next_tick() -> int:
    """The time in 4096ths of a millisecond, and always after the last one: the clock may stand still for two
    ids, and may be put back."""
    global _last_tick
    with _lock:
        _last_tick = max(_last_tick + 1, (time.time_ns() << 12) // 1_000_000)
        return _last_tick


def _renew_lock() -> None:
    """Another thread of the parent may have held it, and does not exist in a forked child."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
