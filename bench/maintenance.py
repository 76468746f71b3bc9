"""`python -m bench.maintenance [--quick]`: the targets of the maintenance jobs, on a private PostgreSQL.

Clean-up: what an expired session costs among few and among many, its memory, and how much it slows eight
writers. Export and import: memory, and whether the copy is equal.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import resource
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench import payload
from bench.databases import DURABLE
from bench.fill import copy_session
from bench.place import Place
from bench.targets import Target
from tests.postgres import private_server

WRITERS = 8
ROUNDS = 5
SECTIONS = ("cleanup", "transfer", "writers")
DATABASES = ("small", "large", "copy")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.maintenance", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    arguments = parser.parse_args()
    share = 10 if arguments.quick else 1
    with private_server(**DURABLE) as server, tempfile.TemporaryDirectory(prefix="helix_bench_") as folder:
        place = Place(server.url, Path(folder) / "unused.sqlite3", {"direct": server.port})
        for name in DATABASES:
            place.execute(f"CREATE DATABASE {name}")
        urls = {"default": place.url("large"), **{name: place.url(name) for name in DATABASES}}
        os.environ["HELIX_BENCH_DATABASES"] = json.dumps(urls)
        os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
        for name in DATABASES:
            in_a_process(migrate, name)
        targets: list[Target] = []
        if "cleanup" in arguments.only:
            targets += measure_cleanup(place, 100_000 // share)
        if "transfer" in arguments.only:
            targets += measure_transfer(Path(folder), 100_000 // share)
        if "writers" in arguments.only:
            targets += measure_writers(place, 100_000 // share)
    print("\n== targets ==")
    for target in targets:
        print(target)


def measure_cleanup(place: Place, sessions: int) -> list[Target]:
    """The same number of expired sessions is dealt with in a small and in a large database, in turn."""
    counts = {"small": sessions // 10, "large": sessions}
    costs: dict[str, list[float]] = {name: [] for name in counts}
    some = sessions // 100
    for name, count in counts.items():
        fill(place, name, count)
    for _ in range(ROUNDS):
        for name, measured in costs.items():
            expire(place, name)
            seconds, _, summary = in_a_process(clean_up, name, some)
            assert summary["marked"] == some, summary
            measured.append(seconds / some)
    ratio = median(large / small for small, large in zip(costs["small"], costs["large"], strict=True))
    for name, count in counts.items():
        print(
            f"among {count:,} sessions: {min(costs[name]) * 1000:.2f} ms for each that has expired",
            flush=True,
        )
    expire(place, "large")
    seconds, memory, summary = in_a_process(clean_up, "large", None)
    assert summary["marked"] == sessions // 10, summary
    print(f"all {sessions // 10:,} expired of {sessions:,}: {seconds:.0f} s, {memory:.0f} MB", flush=True)
    return [
        Target(f"cost per expired session, {sessions:,} / {sessions // 10:,}", ratio, 1.2),
        Target("clean-up, peak memory in MB", memory, 150),
    ]


def measure_transfer(folder: Path, messages: int) -> list[Target]:
    in_a_process(write_long_session, "large", messages)
    first, second = folder / "first.jsonl", folder / "second.jsonl"
    out, out_peak, _ = in_a_process(export, "large", str(first))
    back, back_peak, _ = in_a_process(bring_in, "copy", str(first))
    in_a_process(export, "copy", str(second))
    same = _digest(first) == _digest(second)
    size = first.stat().st_size / 2**20
    print(f"{messages:,} messages, {size:.0f} MB: export {out:.1f} s {out_peak:.0f} MB", end="; ")
    print(f"import {back:.1f} s {back_peak:.0f} MB; {'equal' if same else 'NOT EQUAL'}")
    return [
        Target("export + import, peak memory in MB", max(out_peak, back_peak), 200),
        Target("the copy is equal", float(same), 1, at_least=True),
    ]


def measure_writers(place: Place, sessions: int) -> list[Target]:
    """Steps per second of eight writers alone and next to a clean-up, in turn."""
    seconds = 4.0
    if not place.execute("SELECT 1 FROM helix_sessions_session LIMIT 1", "large"):
        fill(place, "large", sessions)
    alone: list[float] = []
    beside: list[float] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WRITERS + 1, mp_context=context) as pool:
        list(pool.map(write_steps, [0.5] * (WRITERS + 1)))  # every process is up and connected
        for number in range(ROUNDS * 2):
            expire(place, "large")
            cleaning = number % 2
            writing = [pool.submit(write_steps, seconds) for _ in range(WRITERS)]
            if cleaning:
                done = pool.submit(keep_cleaning_up, "large", seconds)
            rate = sum(future.result() for future in writing)
            (beside if cleaning else alone).append(rate)
            if cleaning:
                print(f"{rate:,.0f} steps/s beside a clean-up of {done.result():,} sessions", flush=True)
    ratio = median(one / other for one, other in zip(alone, beside, strict=True))
    print(f"{median(alone):,.0f} steps/s alone, {median(beside):,.0f} beside a clean-up")
    return [Target(f"{WRITERS} writers alone / beside a clean-up", ratio, 1.10)]


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it in a new process, whose peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _store(using: str) -> Any:
    import django

    django.setup()
    from helix_sessions.store import SessionStore

    return SessionStore(using)


def _measured(work: Callable[[], Any]) -> tuple[float, float, Any]:
    start = perf_counter()
    outcome = work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return perf_counter() - start, peak, outcome


def migrate(using: str) -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", database=using, verbosity=0)


def clean_up(using: str, limit: int | None) -> Any:
    from dataclasses import asdict

    store = _store(using)
    return _measured(lambda: asdict(store.expired_session_cleanup(rest=0, limit=limit)))


def keep_cleaning_up(using: str, seconds: float) -> int:
    store = _store(using)
    end = perf_counter() + seconds
    summary = store.expired_session_cleanup(should_stop=lambda: perf_counter() > end)
    return int(summary.marked)


def export(using: str, path: str) -> Any:
    store = _store(using)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        return _measured(lambda: store.export_sessions(file, session_ids=["long"]).records)


def bring_in(using: str, path: str) -> Any:
    store = _store(using)
    with open(path, encoding="utf-8", newline="\n") as file:
        return _measured(lambda: store.import_sessions(file).records)


def write_long_session(using: str, messages: int) -> None:
    store = _store(using)
    store.create_session("long", agent_type="bench")
    some = payload.history(500)
    for _ in range(messages // 500):
        store.append_messages("long", some)


def create_original(using: str) -> None:
    _store(using).create_session("original", agent_type="bench")


def write_steps(seconds: float) -> float:
    """Commit steps to a session of its own; how many per second."""
    from dataclasses import replace

    store = _store("large")
    state = store.create_session(None, agent_type="bench")
    steps = payload.steps()
    start, done = perf_counter(), 0
    while (elapsed := perf_counter() - start) < seconds:
        step = next(steps)
        store.save_state_and_promote_staging(
            state.session_id, replace(state, custom_state=step.state), step.messages
        )
        done += 1
    return done / elapsed


def fill(place: Place, database: str, sessions: int) -> None:
    """So many sessions, each with its first event; a tenth of them have expired."""
    in_a_process(create_original, database)
    late = "CASE WHEN n % 10 = 0 THEN now() - interval '1 day' ELSE now() + interval '1 day' END"
    name = "'s' || lpad(n::text, 8, '0')"
    table = "helix_sessions_session"
    copy_session(place, database, table, "original", sessions, session_id=name, expires_at=late)
    place.execute(
        "INSERT INTO helix_sessions_event (session_id, seq, type, created_at)"
        " SELECT session_id, 1, 'session_started', created_at FROM helix_sessions_session"
        " WHERE session_id <> 'original'",
        database,
    )
    place.settle(database)


def expire(place: Place, database: str) -> None:
    """Let the expired ones be unfinished again."""
    place.execute(
        "UPDATE helix_sessions_session SET status = 'active', failure_reason = NULL WHERE status = 'failed'",
        database,
    )
    place.execute("VACUUM ANALYZE helix_sessions_session", database)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


if __name__ == "__main__":
    main()
