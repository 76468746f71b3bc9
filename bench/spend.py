"""What counting the spending costs a step: `python -m bench.spend [seconds] [rounds]`.

Sixteen processes commit turns through the loop's own writes, without a report of usage and with one, which
is counted for the limits: of one owner, and of sixteen; without a limit and with nine. The ways take turns,
so that only ratios of one run are compared. It starts a private PostgreSQL server, as the tests do.
"""

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter
from typing import Any

WRITERS = 16
WAYS = ("no report", "one owner", "sixteen owners")
STEPS_AT_ONCE = 10


def main() -> int:
    """Print steps per second of each way, and its ratio to that without a report."""
    from tests.postgres import private_server

    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with private_server() as server:
        os.environ["DATABASE_URL"] = server.url
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        writers = [_Writer(number) for number in range(WRITERS)]
        try:
            for limits in (0, 9):
                _set_limits(limits)
                rates: dict[str, list[float]] = {way: [] for way in WAYS}
                for _ in range(rounds):
                    for way in WAYS:
                        rates[way].append(_rate(writers, way, seconds))
                _print(limits, rates)
        finally:
            for writer in writers:
                writer.process.terminate()
    return 0


def _print(limits: int, rates: dict[str, list[float]]) -> None:
    print(f"{limits} limits, {WRITERS} writers")
    for way in WAYS:
        ratios = [rate / base for rate, base in zip(rates[way], rates[WAYS[0]], strict=True)]
        print(f"  {way:15} {median(rates[way]):8.0f} steps/s   {median(ratios):.3f} of the first")


def _set_limits(number: int) -> None:
    from helix_sessions.store import SessionStore

    for limit in range(number):
        scope, key = (("owner", "1"), ("agent_type", "bench"), ("all", None))[limit % 3]
        window = ("day", "month", "total")[limit // 3]
        SessionStore().set_spend_limit(scope=scope, key=key, window=window, usd=10**8)  # type: ignore[arg-type]


def _rate(writers: list["_Writer"], way: str, seconds: float) -> float:
    for writer in writers:
        writer.pipe.send((way, seconds))
    return sum(float(writer.pipe.recv()) for writer in writers)


class _Writer:
    """A process with a session of its own for each way."""

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
    from helix_sessions.types import TurnOutcome

    store = SessionStore()
    for way in WAYS:
        owner = number + 1 if way == WAYS[2] else 1
        store.create_session(f"{way} {number}", agent_type="bench", owner=owner)
    while True:
        way, seconds = pipe.recv()
        usage: Any = None if way == WAYS[0] else {"cost": 0.001, "input_tokens": 900, "output_tokens": 90}
        step = TurnOutcome(calls("tool"), usage=usage)
        key, turns, began = f"{way} {number}", 0, perf_counter()
        while perf_counter() - began < seconds:
            script = [step] * (STEPS_AT_ONCE - 1) + [TurnOutcome("done", usage=usage)]
            agent = ScriptedAgent(script, tools={"tool": lambda arguments, turn: 1})
            store.admit_input(key, "go on")
            SessionRunner(agent, store=store).run(key)
            turns += len(agent.turns)
        pipe.send(turns / (perf_counter() - began))


if __name__ == "__main__":
    sys.exit(main())
