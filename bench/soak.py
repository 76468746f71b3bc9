"""`python -m bench.soak [--minutes N]`: mixed load for long, and whether anything grows.

Writers, a worker and those who ask it and answer its approvals, live readers, retention and a console work
side by side on a private PostgreSQL with autovacuum. Writers keep to a rate, so that what grows is seen, and
not what a full machine does. Every ten seconds latency, sizes against live rows, dead rows, memory of the
processes and connections are noted. At the end the last quarter is compared with the first.
"""

import argparse
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from bench import soak_load
from bench.about import about
from bench.databases import DURABLE
from bench.maintenance import in_a_process, migrate
from bench.measure import p99
from bench.place import Place
from bench.soak_chart import chart
from bench.targets import Target
from tests.postgres import private_server

EVERY = 10.0
START_TIMEOUT = 180.0
CREW = {"write": 3, "work": 1, "ask": 2, "stream": 1, "clean": 1, "look": 1}
SERVER = {**DURABLE, "autovacuum": True, "autovacuum_naptime": "10s"}
RESULTS = Path(__file__).parent / "results"
LIMITS = {"ms": 1.5, "p99 ms": 2.0, "bytes": 1.3, "dead": 2.0, "MB": 1.2, "connections": 1.2}
"""By unit: how many times the first quarter the last may be."""
SMALL = {"ms": 1.0, "p99 ms": 10.0, "bytes": 100.0, "dead": 2_000.0, "MB": 50.0, "connections": 5.0}
"""By unit: what is less counts as this much, because from nothing to a little is many times."""

TABLES = """
SELECT relname, n_live_tup, n_dead_tup, pg_table_size(relid), pg_indexes_size(relid)
FROM pg_stat_user_tables WHERE relname IN (
  'helix_sessions_session', 'helix_sessions_event', 'helix_sessions_message', 'helix_sessions_checkpoint',
  'helix_sessions_statesnapshot')
"""
ROWS = "SELECT count(*) FROM {table}"
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    rate = "pieces of work a second of each writer; 0: all it can (20)"
    parser.add_argument("--rate", type=float, default=20, help=rate)
    parser.add_argument("--output", type=Path, default=RESULTS / "soak.json")
    parser.add_argument("--chart", type=Path, default=RESULTS / "soak.svg")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the server is stopped
    with private_server(**SERVER) as server, tempfile.TemporaryDirectory(prefix="helix_bench_") as folder:
        place = Place(server.url, Path(folder) / "unused.sqlite3", {"direct": server.port})
        place.execute("CREATE DATABASE soak")
        os.environ["HELIX_BENCH_DATABASES"] = json.dumps({"default": place.url("soak")})
        os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
        in_a_process(migrate, "default")
        told = {"minutes": arguments.minutes, "rate": arguments.rate, "crew": CREW}
        found: dict[str, Any] = {"about": about(place) | told}
        found["samples"] = soak(place, arguments.minutes * 60, arguments.rate)
    targets = verdict(found["samples"])
    found["targets"] = [str(target) for target in targets]
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(found, indent=1))
    arguments.chart.write_text(chart(found["samples"]))
    print("\n== last quarter / first quarter ==")
    for target in targets:
        print(target)


def soak(place: Place, seconds: float, rate: float) -> list[dict[str, float]]:
    """Let the crew work, and take samples."""
    context = multiprocessing.get_context("spawn")
    crew: dict[str, tuple[Any, Connection]] = {}
    for role, count in CREW.items():
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=soak_load.run, args=(role, number, rate, theirs), daemon=True)
            process.start()
            theirs.close()
            crew[f"{role} {number}"] = process, ours
    samples: list[dict[str, float]] = []
    try:
        for name, (_, pipe) in crew.items():
            if not pipe.poll(START_TIMEOUT):
                raise TimeoutError(f"{name} has not begun")
        start = time.monotonic()
        while (elapsed := time.monotonic() - start) < seconds:
            until = min(EVERY * (len(samples) + 1), seconds)
            taken = _collect(crew, start + until)
            dead = [name for name, (process, _) in crew.items() if not process.is_alive()]
            if dead:
                raise RuntimeError(f"{', '.join(dead)} ended after {elapsed:.0f} s")
            samples.append({"s": round(time.monotonic() - start, 1), **_latencies(taken), **_sizes(place)})
            samples[-1] |= {f"{name}, MB": _memory(process.pid) for name, (process, _) in crew.items()}
            print(json.dumps(samples[-1]), flush=True)
    finally:
        for process, _ in crew.values():
            process.terminate()
        for process, _ in crew.values():
            process.join()
    return samples


def _collect(crew: dict[str, tuple[Any, Connection]], until: float) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {}
    pipes = [pipe for _, pipe in crew.values()]
    while (left := until - time.monotonic()) > 0:
        for pipe in multiprocessing.connection.wait(pipes, timeout=left):
            try:
                news: dict[str, list[float]] = pipe.recv()  # type: ignore[union-attr,call-arg,assignment]
            except EOFError:
                return taken
            for name, seconds in news.items():
                taken.setdefault(name, []).extend(seconds)
    return taken


def _latencies(taken: dict[str, list[float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, seconds in taken.items():
        found[f"{name}, count"] = len(seconds)
        found[f"{name}, ms"] = round(median(seconds) * 1000, 3)
        if len(seconds) >= 100:
            found[f"{name}, p99 ms"] = round(p99(seconds) * 1000, 3)
    return found


def _sizes(place: Place) -> dict[str, float]:
    found: dict[str, float] = {}
    for table, _, dead, heap, indexes in place.execute(TABLES, "soak"):
        ((rows,),) = place.execute(ROWS.format(table=table), "soak")
        name = table.removeprefix("helix_sessions_")
        found[f"{name}, rows"] = rows
        found[f"{name}, dead"] = dead
        found[f"{name}, bytes"] = round((heap + indexes) / max(rows, 1))
    ((found["connections"],),) = place.execute(CONNECTIONS, "soak")
    return found


def _memory(pid: int | None) -> float:
    """What a process has in memory, in MB; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    kilobytes = next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)
    return round(kilobytes / 1024, 1)


def verdict(samples: list[dict[str, float]]) -> list[Target]:
    """The last quarter against the first, of which the time until things settled is left out."""
    settled = samples[min(len(samples) // 8, 6) :]
    quarter = max(len(settled) // 4, 1)
    targets = []
    for name in samples[-1]:
        unit = name.rpartition(", ")[2]
        if unit not in LIMITS:
            continue
        parts = [
            [sample[name] for sample in part if name in sample]
            for part in (settled[:quarter], settled[-quarter:])
        ]
        if all(parts):
            first, last = (max(median(values), SMALL[unit]) for values in parts)
            targets.append(Target(name, last / first, LIMITS[unit]))
    return targets


if __name__ == "__main__":
    main()
