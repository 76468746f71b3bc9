"""Parents with five children each on four workers, of which one after the other is killed."""

import tempfile

from tests.runner.families import run_families
from tests.torture.lanes import Figures
from tests.torture.stops import Stop

CHILDREN = 5
WORKERS = 4
KILLS = 30


def campaign(seed: int, stop: Stop) -> Figures:
    """Run `stop.rounds` parents."""
    with tempfile.TemporaryDirectory() as directory:
        kills = min(KILLS, max(1, stop.rounds // 10))
        figures = run_families(seed, stop.rounds, CHILDREN, WORKERS, kills, directory)
    figures["parents"] = stop.rounds
    return figures
