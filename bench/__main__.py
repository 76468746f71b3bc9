"""`python -m bench [--quick] [--only SECTION …]`."""

import argparse

from bench.databases import databases
from bench.report import show
from bench.results import Results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="five minutes at most")
    parser.add_argument("--only", nargs="+", default=["step"])
    arguments = parser.parse_args()
    results = Results()
    with databases() as place:
        from bench.contestants.floor import Floor
        from bench.contestants.one_statement import OneStatement
        from bench.contestants.ours import Ours
        from bench.operations import time_steps

        contestants = [Floor(place.url("floor")), OneStatement(place.url("floor")), Ours()]
        for length in (0, 100, 1000) if arguments.quick else (0, 100, 1000, 5000, 50000):
            start = len(results.rows)
            results.add_timings("step", f"history {length:,}", time_steps(contestants, length, rounds=30))
            show(results, start)


main()
