"""Sessions that are driven: workers killed, people who decide and answer, and at last a worker alone."""

import gc
import sys
import tempfile
from collections import Counter
from typing import Any

from tests.runner.schedules import run_schedules
from tests.torture.databases import copy_of_database
from tests.torture.lanes import Figures, fork_context, in_lanes
from tests.torture.stops import Stop

SIDE_BY_SIDE = 10


def campaign(seed: int, stop: Stop, lanes: int) -> Figures:
    """Run `stop.rounds` schedules, so many side by side with one seed. Each lane has a database of its own
    and takes the next seed; one that fails is told, and the others go on."""
    rounds = fork_context.Value("i", 0)
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory() as directory:
        return in_lanes(lanes, _run_lane, seed, stop, rounds, directory)


def _run_lane(lane: int, seed: int, stop: Stop, rounds: Any, directory: str) -> Figures:
    figures: Figures = Counter()
    with copy_of_database(lane):
        while stop.goes_on(first := _next(rounds)):
            try:
                found = run_schedules(seed + first, 1, directory, SIDE_BY_SIDE)
            except AssertionError as error:
                figures["failed"] += 1
                print(f"  FAILED: {error}", file=sys.stderr, flush=True)
            else:
                print(f"  seed {seed + first}: {found}", flush=True)
                figures.update(found)
            figures["schedules"] += SIDE_BY_SIDE
    return figures


def _next(rounds: Any) -> int:
    """The number of the first schedule of those that are run next."""
    with rounds.get_lock():
        rounds.value += SIDE_BY_SIDE
        return int(rounds.value) - SIDE_BY_SIDE
