"""`python -m bench.adapters [--quick]`: each framework on our adapter and on its own PostgreSQL store.

Both make the same calls of the framework, in turn, each on a database of its own of one durable server. The
times are those of whole calls in one process; the ratio is taken round by round. At the end a graph of
LangGraph says what a thread costs to keep, and how long many threads take in one event loop.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench import langgraph_async, payload
from bench.contestants.base import Contestant
from bench.contestants.google_adk import APP, USER, GoogleAdk
from bench.contestants.langgraph import LangGraph
from bench.contestants.openai_agents import OpenAIAgents
from bench.contestants.ours import Ours
from bench.databases import Arena, arena
from bench.langgraph_growth import AT_MOST, stored_per_text
from bench.measure import Task, interleave, ratio
from bench.operations import new_session
from bench.place import Place, Route
from bench.results import Results
from bench.scale import Scale

HISTORY = 1000
SECTION = "adapters"
_steps = payload.steps()


class OpenAIAgentsAdapter(OpenAIAgents):
    """`DjangoSession` instead of `SQLAlchemySession`."""

    name = "DjangoSession"
    database = Ours.database
    packages = ("agents",)

    def __init__(self, place: Place, through: Route = "direct") -> None:
        self.runner = asyncio.Runner()
        self.sessions: dict[str, Any] = {}

    def close(self) -> None:
        self.runner.run(_close_connections())
        self.runner.close()

    def create(self, session_id: str) -> None:
        from helix_sessions.integrations.openai_agents import DjangoSession

        self.sessions[session_id] = DjangoSession(session_id)


class LangGraphAdapter(LangGraph):
    """`DjangoSaver` instead of `PostgresSaver`."""

    name = "DjangoSaver"
    database = Ours.database
    packages = ("langgraph",)

    def __init__(self, place: Place, through: Route = "direct") -> None:
        from helix_sessions.integrations.langgraph import DjangoSaver

        self.saver: Any = DjangoSaver()
        self.threads = {}

    def close(self) -> None:
        from django.db import connections

        connections.close_all()


class GoogleAdkAdapter(GoogleAdk):
    """`DjangoSessionService` instead of `DatabaseSessionService`."""

    name = "DjangoSessionService"
    database = Ours.database
    packages = ("google.adk.sessions",)

    def __init__(self, place: Place, through: Route = "direct") -> None:
        from helix_sessions.integrations.google_adk import DjangoSessionService

        self.runner = asyncio.Runner()
        self.service: Any = DjangoSessionService()
        self.sessions = {}

    def close(self) -> None:
        self.runner.run(_close_connections())
        self.runner.close()

    def fill(self, session_id: str, messages: list[payload.Document]) -> None:
        from helix_sessions.store import SessionStore

        self.append(session_id, messages[:1])
        store, key = SessionStore(), f"{APP}/{USER}/{session_id}"
        first = store.get_messages(key).messages
        store.append_messages(key, first * (len(messages) - 1))


async def _close_connections() -> None:
    from asgiref.sync import sync_to_async
    from django.db import connections

    await sync_to_async(connections.close_all)()


@dataclass(frozen=True)
class Duel:
    """One call of a framework: on its own store, on ours, and how far we want to be ahead."""

    what: str
    theirs: type[Contestant]
    ours: type[Contestant]
    call: Callable[[Any, str], Any]
    times_as_fast: float
    share_of_wal: float | None = None
    why: str = ""
    """What stands in the way, where that is not reached."""


def _add_items(one: Any, session_id: str) -> None:
    one.append(session_id, next(_steps).messages)


def _step(one: Any, session_id: str) -> None:
    one.step(session_id, next(_steps))


def _append_event(one: Any, session_id: str) -> None:
    one.append(session_id, next(_steps).messages[:1])


def _append_with_state(one: Any, session_id: str) -> None:
    step = next(_steps)
    one._append(session_id, step.messages[1], step.state)


MERGED = "the state is read, in a statement of its own, before a change is merged into it"
DUELS = [
    Duel("LangGraph step, put_writes and put", LangGraph, LangGraphAdapter, _step, 5, 0.1),
    Duel("OpenAI add_items, two items", OpenAIAgents, OpenAIAgentsAdapter, _add_items, 1.5),
    Duel("ADK append_event", GoogleAdk, GoogleAdkAdapter, _append_event, 2),
    Duel("ADK append_event, 4 KB of state", GoogleAdk, GoogleAdkAdapter, _append_with_state, 2, why=MERGED),
]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.adapters", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only-async", action="store_true", help="many LangGraph threads at once, only")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the server is stopped
    with arena() as where:
        duels = [] if arguments.only_async else DUELS
        missed = [duel.what for duel in duels if not _measure(where, duel, 8 if arguments.quick else 25)]
        for delta in () if arguments.only_async else (False, True):
            if not _measure_growth(where.place, 100 if arguments.quick else 400, delta=delta):
                missed.append(f"LangGraph thread{' of deltas' * delta}, stored")
        for delta in (False, True):
            if not _measure_async(where.place, delta=delta):
                missed.append(f"LangGraph, async{', deltas' * delta}")
    sys.exit(f"Not reached: {', '.join(missed)}" if missed else 0)


def measure_adapters(arena: Arena, scale: Scale, results: Results) -> None:
    """The calls of the frameworks that are installed, on their own store and on ours."""
    for duel in DUELS:
        if duel.theirs.missing():
            continue
        contestants, tasks = _prepare(arena.place, duel)
        results.add_timings(SECTION, duel.what, interleave(tasks, scale.rounds // 2), duel.ours.name)
        for one in contestants:
            one.close()


def _prepare(place: Place, duel: Duel) -> tuple[list[Contestant], list[Task]]:
    """Both with a session of some history, and the call of each."""
    contestants = [duel.theirs(place), duel.ours(place)]
    history = payload.history(HISTORY)
    sessions = [new_session(one, history) for one in contestants]
    place.settle(*(one.database for one in contestants))
    tasks = [
        Task(one.name, lambda one=one, key=key: duel.call(one, key), repeat=10)  # type: ignore[misc]
        for one, key in zip(contestants, sessions, strict=True)
    ]
    return contestants, tasks


def _measure(where: Arena, duel: Duel, rounds: int) -> bool:
    contestants, tasks = _prepare(where.place, duel)
    timings = interleave(tasks, rounds)
    wal = [_wal_of(where.place, task) for task in tasks]
    for one in contestants:
        one.close()
    theirs, ours = (timings[task.name] for task in tasks)
    ahead = ratio(theirs, ours)
    print(f"{duel.what}, history {HISTORY:,}")
    for task, timing, written in zip(tasks, (theirs, ours), wal, strict=True):
        middle, quiet = 1000 * median(timing.seconds), 1000 * timing.quiet
        print(f"  {task.name:<26}{middle:>9.2f} ms {quiet:>9.2f} ms quiet {written:>12,.0f} bytes of WAL")
    reached = ahead.middle >= duel.times_as_fast
    print(f"  times as fast: {ahead.middle:.2f} ({ahead.low:.2f} to {ahead.high:.2f}), ", end="")
    print(f"wanted {duel.times_as_fast:g}: {_verdict(reached)}")
    if duel.share_of_wal is not None:
        share = wal[1] / wal[0]
        reached &= share <= duel.share_of_wal
        print(f"  share of its WAL: {share:.3f}, wanted {duel.share_of_wal:g}: ", end="")
        print(_verdict(share <= duel.share_of_wal))
    sys.stdout.flush()
    return reached


def _measure_async(place: Place, *, delta: bool) -> bool:
    theirs, ours = langgraph_async.best_times(place, delta=delta)
    steps = f"{langgraph_async.THREADS} threads of {langgraph_async.STEPS} steps"
    print(f"LangGraph, {steps} in one event loop{', a DeltaChannel' * delta}")
    print(f"  {'AsyncPostgresSaver':<26}{theirs:>9.2f} s")
    print(f"  {'DjangoSaver':<26}{ours:>9.2f} s")
    print(f"  wanted as fast: {_verdict(ours <= theirs)}", flush=True)
    return ours <= theirs


def _measure_growth(place: Place, turns: int, *, delta: bool) -> bool:
    kind_of_thread = f"LangGraph thread of {turns} turns{', a DeltaChannel' * delta}"
    print(f"{kind_of_thread}, bytes stored for each byte of its messages")
    stored = {}
    for kind in (LangGraph, LangGraphAdapter):
        one = kind(place)
        stored[kind] = stored_per_text(place, one, turns, delta=delta)
        one.close()
        print(f"  {one.name:<26}{stored[kind]:>9.2f}")
    at_most = stored[LangGraph] if delta else AT_MOST
    reached = stored[LangGraphAdapter] <= at_most
    print(f"  wanted {at_most:.3g} or less: {_verdict(reached)}", flush=True)
    return reached


def _verdict(reached: bool) -> str:
    return "reached" if reached else "NOT REACHED"


def _wal_of(place: Place, task: Task) -> float:
    """Bytes of WAL per call; a few before, so that whole pages after a checkpoint are not counted."""
    place.execute("CHECKPOINT")
    for _ in range(10):
        task.run()
    before = _wal_position(place)
    for _ in range(20):
        task.run()
    return (_wal_position(place) - before) / 20


def _wal_position(place: Place) -> int:
    ((position,),) = place.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
    return int(position)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
