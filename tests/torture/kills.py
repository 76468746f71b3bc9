"""Processes in the middle of random calls are killed with SIGKILL, again and again."""

import os
import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from django.db import connections

from tests.torture.expected import assert_healthy, wait_until_gone
from tests.torture.lanes import Figures, in_lanes
from tests.torture.stops import Stop
from tests.torture.writer import Writer

LANES = 2
MOST_LINES = 24
LONGEST_WAIT = 0.015
"""A writer is killed when it has written down so many lines, two for each call, and so many seconds later."""


def campaign(seed: int, stop: Stop) -> Figures:
    """Kill `stop.rounds` writers."""
    with tempfile.TemporaryDirectory() as directory:
        figures = in_lanes(LANES, _kill_again_and_again, seed, stop.share(LANES), directory)
    from helix_sessions.store import SessionStore

    assert_healthy(SessionStore())
    return figures


def _kill_again_and_again(lane: int, seed: int, stop: Stop, directory: str) -> Figures:
    """Start a writer, kill it, look; the next one goes on with what the journal and the database say.

    This process only reads, so that nothing runs in it that a fork would break.
    """
    journal = Path(directory) / f"lane{lane}"
    choice = random.Random(f"{seed} {lane}")
    kills, took_place = 0, False
    seen = Writer(f"w{lane}", choice)
    while stop.goes_on(kills):
        size = journal.stat().st_size if journal.exists() else 0
        connections.close_all()
        child = os.fork()
        if child == 0:
            _write_until_killed(f"w{lane}", f"{seed} {lane} {kills}", journal, took_place)
        _wait_for_lines(choice.randint(1, MOST_LINES), journal, size, child)
        time.sleep(choice.uniform(0, LONGEST_WAIT))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"The writer ended by itself, after {kills} kills."
        kills += 1
        seen = Writer(f"w{lane}", choice, journal)
        wait_until_gone(seen.backend)
        took_place = seen.check()
        seen.close()
    return seen.figures + Counter({"kills": kills})


def _write_until_killed(name: str, seed: str, journal: Path, took_place: bool) -> None:
    try:
        writer = Writer(name, random.Random(seed), journal)
        writer.note_backend()
        writer.settle(took_place)
        while True:
            writer.go()
    finally:
        import traceback

        traceback.print_exc()
        os._exit(1)


def _wait_for_lines(count: int, journal: Path, size: int, child: int) -> None:
    while not (journal.exists() and journal.read_bytes()[size:].count(b"\n") >= count):
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "The writer ended by itself."
        time.sleep(0.001)
