"""What counting the spending costs a step: `python -m bench.spend [seconds]`.

Sixteen processes drive sessions through the loop, turn after turn with a tool, each in turns with and without
the counting, so that other load of the machine slows both alike: all for one owner, and each for an
owner of its own; without a limit and with nine. The ratio is that of the median times of a run of ten turns.
It starts a private PostgreSQL server, as the tests do.
"""

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter

WRITERS = 16
TURNS = 10


def main() -> int:
    """Print the throughput with the counting, as a share of that without."""
    from tests.postgres import private_server

    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    with private_server() as server:
        os.environ["DATABASE_URL"] = server.url
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        writers = [_Writer(number) for number in range(WRITERS)]
        try:
            for limits in (0, 3, 9):
                _set_limits(limits)
                for owners in (1, WRITERS):
                    _print(limits, owners, _durations(writers, owners, seconds))
        finally:
            for writer in writers:
                writer.process.terminate()
    return 0


def _print(limits: int, owners: int, durations: dict[bool, list[float]]) -> None:
    plain, counted = median(durations[False]), median(durations[True])
    runs = len(durations[True])
    print(
        f"{WRITERS} writers, {owners:2} owners, {limits} limits: {plain / counted:.3f} of the throughput"
        f" ({runs} runs each, {plain * 1000:.0f} and {counted * 1000:.0f} ms)",
        flush=True,
    )


def _set_limits(number: int) -> None:
    from helix_sessions.store import SessionStore

    for limit in range(number):
        scope, key = (("owner", "1"), ("agent_type", "bench"), ("all", None))[limit % 3]
        window = ("day", "month", "total")[limit // 3]
        SessionStore().set_spend_limit(scope=scope, key=key, window=window, usd=10**8)  # type: ignore[arg-type]


def _durations(writers: list["_Writer"], owners: int, seconds: float) -> dict[bool, list[float]]:
    for writer in writers:
        writer.pipe.send((owners, seconds))
    found: dict[bool, list[float]] = {False: [], True: []}
    for writer in writers:
        for counts, durations in writer.pipe.recv().items():
            found[counts] += durations
    return found


class _Writer:
    """A process with sessions of its own."""

    def __init__(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_write, args=(number, theirs), daemon=True)
        self.process.start()


def _write(number: int, pipe: Connection) -> None:
    import django

    django.setup()
    from helix_sessions.runtime import SessionRunner
    from helix_sessions.runtime.scripted import ScriptedAgent, calls
    from helix_sessions.store import SessionStore
    from helix_sessions.store.driving.driver import Driver
    from helix_sessions.store.engine import spending
    from helix_sessions.types import TurnOutcome

    store, record, ask = SessionStore(), spending.record, Driver.ask_spend
    usage = {"cost": 0.001, "input_tokens": 900, "output_tokens": 90}
    script = [TurnOutcome(calls("tool"), usage=usage)] * (TURNS - 1) + [TurnOutcome("done", usage=usage)]

    def run(key: str, counts: bool) -> float:
        spending.record = record if counts else lambda work: None
        Driver.ask_spend = ask if counts else lambda driver: None  # type: ignore[method-assign]
        store.admit_input(key, "go on")
        runner = SessionRunner(ScriptedAgent(script, tools={"tool": lambda arguments, turn: 1}), store=store)
        began = perf_counter()
        runner.run(key)
        return perf_counter() - began

    while True:
        owners, seconds = pipe.recv()
        keys = {counts: f"{number} {owners} {counts}" for counts in (False, True)}
        for key in keys.values():
            if not store.session_exists(key):
                store.create_session(key, agent_type="bench", owner=1 + number % owners)
        durations: dict[bool, list[float]] = {False: [], True: []}
        began = perf_counter()
        while perf_counter() - began < seconds:
            for counts, key in keys.items():
                durations[counts].append(run(key, counts))
        pipe.send({counts: each[1:] for counts, each in durations.items()})


if __name__ == "__main__":
    sys.exit(main())
