"""Somebody else who holds what a call needs."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

from helix_sessions.models import Session


@contextmanager
def elsewhere(hold: Callable[[], Any]) -> Iterator[None]:
    """Run `hold()` in a transaction of another connection, which stays open until the block ends."""
    held, release = threading.Event(), threading.Event()

    def keep() -> None:
        try:
            with transaction.atomic():
                hold()
                held.set()
                assert release.wait(60)
        finally:
            held.set()
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        kept = pool.submit(keep)
        assert held.wait(60)
        try:
            yield
        finally:
            release.set()
            kept.result()


def row_held(session_id: str) -> Any:
    """The session's row (on SQLite the database) locked by another connection."""
    return elsewhere(lambda: Session.objects.select_for_update().get(session_id=session_id))
