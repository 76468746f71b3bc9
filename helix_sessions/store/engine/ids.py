"""Ids of sessions and runs."""

import os
import time
import uuid


def new_id() -> str:
    """A UUIDv7: unique, and sorting by the time it was made."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    high, low = random >> 68, random & (1 << 62) - 1
    return str(uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))
