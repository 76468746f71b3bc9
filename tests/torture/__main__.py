"""Campaigns against the promises of the store, at length: `python -m tests.torture [campaign ...]`.

Each prints its figures, and a seed by which its choices can be repeated.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from tests.pgbouncer import MISSING, find_pgbouncer
from tests.postgres import private_server
from tests.torture.databases import database, use
from tests.torture.stops import Stop

ENGINES = ("sqlite", "postgresql")


@dataclass(frozen=True)
class Campaign:
    """On which engines it is run, how many rounds its long form has, and what it works on: a database, a
    server that it may break, or what it makes itself."""

    engines: tuple[str, ...]
    rounds: int
    on: Literal["database", "server", "nothing"] = "database"
    needs: Callable[[], str | None] = lambda: None
    """Says what is missing here, if anything is."""
    lanes: int | None = None
    """How many processes run it side by side, if that can be chosen."""


def _without_pgbouncer() -> str | None:
    return MISSING if find_pgbouncer() is None else None


def _without_patroni() -> str | None:
    if shutil.which("patroni") is None:
        return "Patroni is not installed (pip install 'patroni[etcd3]>=4')"
    return "etcd is not installed (apt install etcd-server)" if shutil.which("etcd") is None else None


CAMPAIGNS = {
    "kills": Campaign(ENGINES, 1_000),
    "crashes": Campaign(("postgresql",), 200, on="server"),
    "cuts": Campaign(("postgresql",), 2_000),
    "races": Campaign(ENGINES, 500),
    "failover": Campaign(("postgresql",), 20, on="server"),
    "pooled": Campaign(("postgresql",), 10_000, needs=_without_pgbouncer),
    "failover_pooled": Campaign(("postgresql",), 20, on="server", needs=_without_pgbouncer),
    "reused_ids": Campaign(("postgresql",), 20, on="server", needs=_without_pgbouncer),
    "wraparound": Campaign(("postgresql",), 20_000, on="server"),
    "patroni": Campaign(("postgresql",), 6, on="nothing", needs=_without_patroni),
    "long_session": Campaign(ENGINES, 100_000),
    "schedules": Campaign(ENGINES, 10_000, lanes=4),
    "driven": Campaign(("postgresql",), 200, on="server"),
    "family_kills": Campaign(ENGINES, 1_000),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("campaigns", nargs="*", metavar="campaign", help=f"one of {', '.join(CAMPAIGNS)}")
    parser.add_argument("--engine", choices=ENGINES, help="on this engine only")
    parser.add_argument("--rounds", type=int, help="instead of the campaign's own number")
    parser.add_argument("--seconds", type=float, default=3600.0, help="at most so long, each")
    parser.add_argument("--lanes", type=int, help="so many processes side by side, where that can be chosen")
    parser.add_argument("--seed", type=int, help="repeat the choices of a campaign that printed it")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    unknown = [name for name in chosen.campaigns if name not in CAMPAIGNS]
    if unknown:
        parser.error(f"there is no campaign {unknown[0]}")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    seed = random.SystemRandom().randrange(10**9) if chosen.seed is None else chosen.seed
    runs = [
        (name, engine)
        for name in chosen.campaigns or CAMPAIGNS
        for engine in ([chosen.engine] if chosen.engine else ENGINES)
        if engine in CAMPAIGNS[name].engines
    ]
    if chosen.here:
        [(name, engine)] = runs
        stop = Stop(chosen.rounds or CAMPAIGNS[name].rounds, chosen.seconds)
        return _run(name, engine, stop, seed, chosen.lanes)
    return max([_apart(name, engine, seed) for name, engine in runs], default=0)


def _apart(name: str, engine: str, seed: int) -> int:
    """Each in a process of its own: Django is set up once in each, on one database."""
    options = [option for option in sys.argv[1:] if option not in CAMPAIGNS]
    command = [sys.executable, "-m", "tests.torture", name, *options]
    command += ["--engine", engine, "--seed", str(seed), "--here"]
    return subprocess.run(command).returncode


def _run(name: str, engine: str, stop: Stop, seed: int, lanes: int | None) -> int:
    print(f"{name} on {engine}, seed {seed}", flush=True)
    if reason := CAMPAIGNS[name].needs():
        print(f"  skipped: {reason}")
        return 0
    with ExitStack() as stack:
        given: list[Any] = []
        if CAMPAIGNS[name].lanes is not None:
            given.append(lanes or CAMPAIGNS[name].lanes)
        if CAMPAIGNS[name].on == "server":
            given.append(stack.enter_context(private_server()))
            use(given[-1].url)
        elif CAMPAIGNS[name].on == "database":
            use(stack.enter_context(database(engine)))
        campaign = import_module(f"tests.torture.{name}").campaign
        begun = time.monotonic()
        figures: Counter[str] = campaign(seed, stop, *given)
        found = {**figures, "seconds": round(time.monotonic() - begun, 1)}
    for label, value in found.items():
        print(f"  {label}: {value:,}")
    print(json.dumps({"campaign": name, "engine": engine, "seed": seed, **found}), flush=True)
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
