"""The server itself crashes under load, and is started again."""

import random
import time
from collections import Counter
from typing import Any

from django.db import connections

from helix_sessions.store import SessionStore
from tests.postgres import Server
from tests.torture.expected import assert_healthy
from tests.torture.lanes import Figures, Lane, fork_context, wait_for_writes
from tests.torture.stops import Stop
from tests.torture.writer import LOST, Writer

LANES = 2
MOST_CALLS = 12
LONGEST_WAIT = 0.02
"""The server crashes when so many calls were acknowledged, and so many seconds later."""


def campaign(seed: int, stop: Stop, server: Server) -> Figures:
    """Crash the server `stop.rounds` times."""
    choice = random.Random(seed)
    over, made = fork_context.Event(), fork_context.Value("q", 0)
    lanes = [Lane(_write_until, over, made, lane, seed) for lane in range(LANES)]
    crashes = 0
    try:
        while stop.goes_on(crashes):
            wait_for_writes(made, made.value + choice.randint(1, MOST_CALLS))
            time.sleep(choice.uniform(0, LONGEST_WAIT))
            server.restart("immediate")
            crashes += 1
        wait_for_writes(made, made.value + MOST_CALLS)
        over.set()
        figures: Figures = sum((lane.figures() for lane in lanes), Counter())
    finally:
        for lane in lanes:
            lane.end()
    connections.close_all()
    assert_healthy(SessionStore())
    return figures + Counter({"crashes of the server": crashes})


def _write_until(over: Any, made: Any, lane: int, seed: int) -> Figures:
    writer = Writer(f"w{lane}", random.Random(f"{seed} {lane}"))
    writer.note_backend()
    while not over.is_set():
        try:
            writer.go()
        except LOST:
            writer.go_on_after_losing_the_connection()
        else:
            with made.get_lock():
                made.value += 1
    return writer.figures
