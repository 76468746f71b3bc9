"""The server itself crashes under load, and is started again."""

import random
import time
from collections import Counter

from django.db import connections

from helix_sessions.store import SessionStore
from tests.postgres import Server
from tests.torture.expected import assert_healthy
from tests.torture.lanes import Figures, Lane, fork_context
from tests.torture.stops import Stop
from tests.torture.writer import LOST, Writer

LANES = 2
LONGEST_PEACE = 0.6


def campaign(seed: int, stop: Stop, server: Server) -> Figures:
    """Crash the server `stop.rounds` times."""
    choice = random.Random(seed)
    over = fork_context.Event()
    lanes = [Lane(_write_until, over, lane, seed) for lane in range(LANES)]
    crashes = 0
    try:
        while stop.goes_on(crashes):
            time.sleep(choice.uniform(0, LONGEST_PEACE))
            server.restart("immediate")
            crashes += 1
        time.sleep(LONGEST_PEACE)
        over.set()
        figures: Figures = sum((lane.figures() for lane in lanes), Counter())
    finally:
        for lane in lanes:
            lane.end()
    connections.close_all()
    assert_healthy(SessionStore())
    return figures + Counter({"crashes of the server": crashes})


def _write_until(over: object, lane: int, seed: int) -> Figures:
    writer = Writer(f"w{lane}", random.Random(f"{seed} {lane}"))
    writer.note_backend()
    while not over.is_set():  # type: ignore[attr-defined]
        try:
            writer.go()
        except LOST:
            writer.go_on_after_losing_the_connection()
    return writer.figures
