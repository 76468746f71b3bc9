"""The loop: admission to first token, inputs per second, and what waiting costs.

Peers move the same message through the same server, all with PostgreSQL's defaults. What one input is, from
the worker that takes it to its end:

- ours, three commits: the claim of the session (a lease with a fence); the input becomes a message of the
  transcript, and a run and its turn begin; the answer, a checkpoint, the end of the run, and the lease given
  back. Ten numbered events are logged on the way. The claim does not wait for the disk, the others do.
- Procrastinate, two commits: the job is fetched, and finished, with an event row for each by its triggers. It
  keeps no answer.
- DBOS, three commits: the workflow's row, the output of its one step, and the workflow's end, with reads
  between them. No queue is asked for it, so nothing is claimed and no worker is told.
- Celery, for latency only, by its SQLAlchemy transport, which polls.

Latency is from the hand-over to a worker with nothing else to do. Inputs a second are counted when a fifth of
them is done, so that nobody pays for imports, connections and first plans.
"""

import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from bench.databases import Arena
from bench.loop_workers import LOOP_AGENT, celery_app, procrastinate_app
from bench.measure import Spread, p99
from bench.place import Place
from bench.results import Results, Row
from bench.scale import Scale

SECTION = "loop"
PEERS = {"Procrastinate": ("procrastinate",), "Celery": ("celery", "sqlalchemy"), "DBOS": ("dbos",)}
"""Each with the modules that it needs."""
OURS = "ours"
QUEUES = "queues"
IDLE_SECONDS = 60.0
REPORT_SECONDS = 15.0
"""A connection that goes idle reports its last transactions up to ten seconds later, and what a worker does
when it starts is not what it does when it is idle."""
PATIENCE_SECONDS = 300.0


def missing_queues() -> list[str]:
    """The peers of this section that are not installed."""
    return [name for name, modules in PEERS.items() if not all(map(find_spec, modules))]


def measure_loop(arena: Arena, scale: Scale, results: Results) -> None:
    place = arena.place
    missing = missing_queues()
    peers = [name for name in PEERS if name not in missing]
    print(f"left out, not installed: {', '.join(missing) or 'nothing'}")
    place.execute(f"CREATE DATABASE {QUEUES}")
    place.execute("CREATE DATABASE workflows")
    with tempfile.TemporaryDirectory(prefix="helix_loop_") as directory, ExitStack() as stack:
        loop = _Loop(place, Path(directory), scale, results)
        senders = {name: stack.enter_context(loop.sender(name)) for name in (OURS, *peers) if name != "DBOS"}
        loop.latency(senders)
        loop.idle()
        loop.throughput(senders, peers)


class _Loop:
    def __init__(self, place: Place, directory: Path, scale: Scale, results: Results) -> None:
        self._place = place
        self._directory = directory
        self._results = results
        self._quick = scale.rounds < 30

    @contextmanager
    def sender(self, name: str) -> Iterator[Callable[[str], Any]]:
        """How a message is handed over."""
        address = self._place.url(QUEUES)
        if name == OURS:
            yield self._admit
        elif name == "Procrastinate":
            app = procrastinate_app(address, lambda name: None, sync=True)
            with app.open():
                app.schema_manager.apply_schema()
                yield lambda key: app.tasks["note"].defer(name=key)
        else:
            app = celery_app(address, lambda name: None)
            yield lambda key: app.tasks["note"].delay(key)

    def _admit(self, key: str) -> None:
        from helix_sessions.store import SessionStore

        SessionStore().admit_input(key, "Where is my parcel?")

    @staticmethod
    def _create(keys: list[str]) -> None:
        from helix_sessions.store import SessionStore

        for key in keys:
            SessionStore().create_session(key, agent_type=LOOP_AGENT)

    def latency(self, senders: dict[str, Callable[[str], Any]]) -> None:
        """One message at a time, to a worker that has nothing else to do."""
        count = 30 if self._quick else 100
        for name, send in senders.items():
            keys = _names(count)
            if name == OURS:
                self._create(keys)
            with self._workers(name, 1) as notes:
                notes.go()
                time.sleep(3)
                began, handed = {}, {}
                for key in keys:
                    began[key] = time.monotonic()
                    send(key)
                    handed[key] = time.monotonic()
                    notes.wait_for(1, [key])
                    time.sleep(0.02)
                times = notes.times()
            took = [(times[key] - began[key]) * 1000 for key in keys]
            self._add("hand-over to first token, p50", name, Spread.of(took), "ms")
            self._add("hand-over to first token, p99", name, p99(took), "ms")
            if name == OURS:
                told = notes.all("told")
                woken = [
                    (min(at for at in told if at >= began[key]) - handed[key]) * 1000
                    for key in keys
                    if any(began[key] <= at <= times[key] for at in told)
                ]
                self._add("commit to wake-up by NOTIFY, p50", name, max(0.0, median(woken)), "ms")

    def idle(self) -> None:
        """All of `run_sessions`, with alerts and bulk actions: each statement is a transaction."""
        with self._workers(OURS, 1) as notes, self._without_autovacuum():
            notes.go()
            time.sleep(REPORT_SECONDS)
            before, began = self._transactions(), time.monotonic()
            time.sleep(IDLE_SECONDS)
            rate = (self._transactions() - before) / (time.monotonic() - began)
        self._add("statements of an idle worker", OURS, rate, "a second")

    @contextmanager
    def _without_autovacuum(self) -> Iterator[None]:
        """Its transactions are the server's own."""
        self._place.execute("ALTER SYSTEM SET autovacuum = off")
        self._place.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            self._place.execute("ALTER SYSTEM RESET autovacuum")
            self._place.execute("SELECT pg_reload_conf()")

    def _transactions(self) -> int:
        sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'ours'"
        return int(self._place.execute(sql)[0][0])

    def throughput(self, senders: dict[str, Callable[[str], Any]], peers: list[str]) -> None:
        """Messages that wait, and workers that take them."""
        count, rounds = (500, 2) if self._quick else (1_000, 3)
        names = [OURS, *(name for name in peers if name != "Celery")]
        for workers in (1, 4):
            rates: dict[str, list[float]] = {name: [] for name in names}
            for _ in range(rounds):
                for name in names:
                    rates[name].append(self._rate(name, senders.get(name), workers, count))
            operation = f"inputs of {workers} worker{'s' if workers > 1 else ''}"
            self._results.add_numbers(SECTION, operation, "a second", rates, OURS)

    def _rate(self, name: str, send: Callable[[str], Any] | None, workers: int, count: int) -> float:
        keys = _names(count)
        if name == OURS:
            self._create(keys)
        for key in keys if send is not None else ():
            send(key)
        with self._workers(name, workers, count // workers) as notes:
            notes.go()
            notes.wait_for(count, None if send is None else keys)
            times = sorted(notes.times().values())[count // 5 :]
        return (len(times) - 1) / (times[-1] - times[0])

    @contextmanager
    def _workers(self, kind: str, number: int, count: int = 0) -> Iterator["_Notes"]:
        notes = _Notes(self._directory / uuid.uuid4().hex)
        address = self._place.url("workflows" if kind == "DBOS" else QUEUES)
        command = [sys.executable, "-m", "bench.loop_workers", kind, str(notes.path), address, str(count)]
        workers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(number)]
        try:
            notes.wait_for(number, ["ready"])
            yield notes
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()

    def _add(self, operation: str, contestant: str, value: Spread | float, unit: str) -> None:
        spread = value if isinstance(value, Spread) else Spread(value, value, value)
        base = self._results.find(SECTION, operation, OURS)
        against = None if base is None else spread.scaled(1 / base.value.middle)
        self._results.rows.append(Row(SECTION, operation, contestant, spread, unit, against, OURS))


class _Notes:
    """What workers have noted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()

    def go(self) -> None:
        """Let the workers begin."""
        Path(f"{self.path}.go").touch()

    def lines(self) -> list[tuple[str, float]]:
        pairs = [line.split() for line in self.path.read_text().splitlines()]
        return [(pair[0], float(pair[1])) for pair in pairs if len(pair) == 2]

    def times(self) -> dict[str, float]:
        """When each piece of work was come to first."""
        found: dict[str, float] = {}
        for name, at in self.lines():
            if name not in ("ready", "told"):
                found.setdefault(name, at)
        return found

    def all(self, name: str) -> list[float]:
        return [at for found, at in self.lines() if found == name]

    def wait_for(self, count: int, names: list[str] | None) -> None:
        """Until so many of these names, or of any work, were noted."""
        wanted = None if names is None else set(names)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            lines = self.lines()
            if wanted is None:
                found = len({name for name, _ in lines} - {"ready", "told"})
            else:
                found = sum(name in wanted for name, _ in lines)
            if found >= count:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{found} of {count} were noted")
            time.sleep(0.002 if count == 1 else 0.02)


def _names(count: int) -> list[str]:
    return [uuid.uuid4().hex for _ in range(count)]
