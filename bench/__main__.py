"""`python -m bench [--quick] [--only SECTION ...]`: measure, print, and write results and charts.

`bench/results/latest.json` is of the last whole run, `part.json` of the last one that was quick or of some
sections. `python -m bench.publish` puts the whole one into the documentation.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from bench.about import about
from bench.adapters import measure_adapters
from bench.charts import charts
from bench.claims import measure_claims
from bench.contestants import PEERS
from bench.context import measure_context
from bench.databases import Arena, arena
from bench.growth import measure_growth
from bench.http import measure_http
from bench.listing import measure_listing
from bench.loop import measure_loop, missing_queues
from bench.on_sqlite import measure_sqlite
from bench.operations import measure_delayed_steps, measure_operations, measure_steps
from bench.other_load import Clock, share_since
from bench.publish import reasons_against
from bench.report import show
from bench.resources import measure_resources
from bench.results import Results
from bench.scale import FULL, QUICK, Scale
from bench.stored import measure_stored
from bench.streams.measure import measure_streams
from bench.streams.tokens import measure_tokens
from bench.targets import targets
from bench.writers import measure_writers

SECTIONS: dict[str, Callable[[Arena, Scale, Results], None]] = {
    "stored": measure_stored,  # first, while no table has free space inside
    "step": measure_steps,
    "delay": measure_delayed_steps,
    "operations": measure_operations,
    "adapters": measure_adapters,
    "resources": measure_resources,
    "writers": measure_writers,
    "list": measure_listing,
    "growth": measure_growth,
    "context": measure_context,
    "sqlite": measure_sqlite,
    "streams": measure_streams,
    "tokens": measure_tokens,
    "http": measure_http,
    "loop": measure_loop,
    "claims": measure_claims,
}
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds: five minutes")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the server is stopped
    scale = QUICK if arguments.quick else FULL
    results = Results()
    for peer in PEERS:
        missing = ", ".join(peer.missing())
        print(f"{peer.name}: {f'left out, {missing} is not installed' if missing else peer.less}")
    start_of_run = Clock.read()
    with arena() as where:
        results.about = about(where.place) | {
            "quick": arguments.quick,
            "sections_left_out": [name for name in SECTIONS if name not in arguments.only],
            "peers_left_out": [*(peer.name for peer in PEERS if peer.missing()), *missing_queues()],
        }
        print(json.dumps(results.about, indent=1), flush=True)
        for section in arguments.only:
            begin, start = len(results.rows), perf_counter()
            SECTIONS[section](where, scale, results)
            show(results, begin)
            print(f"({section}: {perf_counter() - start:.0f} s)", flush=True)
    results.about["load_after"] = round(os.getloadavg()[0], 1)
    results.about["others"] = share_since(start_of_run)  # the servers have stopped
    print(f"\n== targets ==\n{'what':50}{'ratio':>8}{'quiet':>8}  target")
    for target in targets(results, scale):
        print(target)
    _write(results, "part" if arguments.quick or results.about["sections_left_out"] else "latest")
    if reasons := reasons_against(results.about):
        print(f"\nThis run cannot be published: {'; '.join(reasons)}.")


def _write(results: Results, name: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(results.as_json(), indent=1))
    for chart, picture in charts(results).items():
        (RESULTS / f"{name}-{chart}.svg").write_text(picture)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
