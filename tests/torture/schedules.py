"""Sessions that are driven: workers killed, people who decide and answer, and at last a worker alone."""

import tempfile
from collections import Counter

from tests.runner.schedules import run_schedules
from tests.torture.lanes import Figures
from tests.torture.stops import Stop

SIDE_BY_SIDE = 10


def campaign(seed: int, stop: Stop) -> Figures:
    """Run `stop.rounds` schedules, so many side by side with one seed, which a failure names."""
    figures: Figures = Counter()
    rounds = 0
    with tempfile.TemporaryDirectory() as directory:
        while stop.goes_on(rounds):
            figures.update(run_schedules(seed + rounds, 1, directory, SIDE_BY_SIDE))
            rounds += SIDE_BY_SIDE
    figures["schedules"] = rounds
    return figures
