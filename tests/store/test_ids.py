"""Ids that the store makes: unique, and in the order they were made."""

import os
import signal
import time
import uuid
from datetime import timedelta
from typing import Any

import pytest

from helix_sessions.store.engine import ids
from helix_sessions.store.engine.ids import new_id


def test_it_is_a_uuid7_of_now() -> None:
    made = uuid.UUID(new_id())

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert abs((made.int >> 80) - time.time_ns() // 1_000_000) < 1_000


def test_ids_of_one_process_sort_in_the_order_they_were_made() -> None:
    made = [new_id() for _ in range(10_000)]

    assert made == sorted(set(made))


def test_also_while_the_clock_stands_still_or_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for back in (timedelta(0), timedelta(hours=1)):
        first, moment = new_id(), time.time_ns() - int(back.total_seconds()) * 10**9
        with monkeypatch.context() as clock:
            clock.setattr(time, "time_ns", lambda moment=moment: moment)
            made = [first, *(new_id() for _ in range(5_000))]

        assert made == sorted(set(made)), f"put back by {back}"


def test_threads_and_forked_processes_never_make_the_same(run_threads: Any) -> None:
    by_threads = run_threads(8, lambda _: [new_id() for _ in range(500)])
    with ids._lock:  # as another thread may hold it at the moment of a fork
        child, theirs = _forked()
    made = [*theirs, *(new_id() for _ in range(100)), *(key for keys in by_threads for key in keys)]

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(theirs) == 100
    assert len(made) == len(set(made))


def _forked() -> tuple[int, list[str]]:
    """A child that makes ids, and these."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # rather than wait for ever for a lock that nobody holds here
        os.write(writing, " ".join(new_id() for _ in range(100)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        return child, told.read().split()
