"""The connection is cut in the middle of a commit, and the call is made again."""

import random
from collections import Counter

from django.db import connections

from helix_sessions.store import SessionStore
from tests.torture.expected import assert_healthy
from tests.torture.lanes import Figures, in_lanes
from tests.torture.proxy import NAMES, cutting_proxy
from tests.torture.stops import Stop
from tests.torture.writer import LOST, Writer

LANES = 2
ONE_IN = 3


def campaign(seed: int, stop: Stop) -> Figures:
    """Cut `stop.rounds` commits."""
    settings = connections.settings["default"]
    direct = settings["PORT"]
    with cutting_proxy(int(direct), seed, ONE_IN) as (port, cuts):
        settings["PORT"] = str(port)
        figures = in_lanes(LANES, _write_through_the_proxy, seed, stop.share(LANES))
        settings["PORT"] = direct
    assert_healthy(SessionStore())
    ways = {f"cut {name}": count for name, count in zip(NAMES, cuts, strict=True)}
    return figures + Counter({"cut commits": sum(cuts), **ways})


def _write_through_the_proxy(lane: int, seed: int, stop: Stop) -> Figures:
    writer = Writer(f"w{lane}", random.Random(f"{seed} {lane}"))
    writer.note_backend()
    lost = 0
    while stop.goes_on(lost):
        try:
            writer.go()
        except LOST:
            lost += 1
            writer.go_on_after_losing_the_connection()
    return writer.figures
