"""Sessions that are driven: workers killed, people who decide and answer, and at last a worker alone."""

import tempfile
from collections import Counter

from tests.runner.schedules import run_schedules
from tests.torture.lanes import Figures
from tests.torture.stops import Stop


def campaign(seed: int, stop: Stop) -> Figures:
    """Run `stop.rounds` schedules, each with a seed of its own, which its failure names."""
    figures: Figures = Counter()
    rounds = 0
    with tempfile.TemporaryDirectory() as directory:
        while stop.goes_on(rounds):
            figures.update(run_schedules(seed + rounds, 1, directory))
            rounds += 1
    figures["schedules"] = rounds
    return figures
