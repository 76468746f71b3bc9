"""The operations that are timed one call at a time."""

import os
from collections.abc import Callable, Sequence
from itertools import count, cycle
from typing import Any

from bench import payload
from bench.contestants import BY_NAME, CORE, SHARED, installed_peers
from bench.contestants.base import Contestant
from bench.contestants.by_hand import ByHand, ByHandJsonb
from bench.contestants.ours import Ours
from bench.databases import Arena
from bench.measure import Task, Timing, interleave
from bench.place import Route
from bench.results import Results
from bench.scale import Scale

APPEND_TO_1000 = "append 2 messages, history 1,000"

_numbers = count()
_steps = payload.steps()


def new_id() -> str:
    """An id that no other session has."""
    return f"session-{os.getpid()}-{next(_numbers):08d}"


def new_session(contestant: Contestant, history: Sequence[payload.Document] = ()) -> str:
    """A session with this history, opened."""
    session_id = new_id()
    contestant.create(session_id)
    if history:
        contestant.fill(session_id, list(history))
    contestant.open(session_id)
    return session_id


class Loop:
    """A contestant's run loop at a length of history: `begin` takes a session, `step` commits to it.

    A short history would not stay short over many rounds, so each round takes a new session.
    """

    def __init__(self, contestant: Contestant, length: int) -> None:
        self.contestant = contestant
        self.history = payload.history(length)
        self.session_id = ""
        if length > 1000:
            self.session_id = new_session(contestant, self.history)

    def begin(self) -> None:
        if len(self.history) <= 1000:
            self.session_id = new_session(self.contestant, self.history)

    def step(self) -> None:
        self.contestant.step(self.session_id, next(_steps))


def time_steps(
    arena: Arena, lengths: dict[type[Contestant], Sequence[int]], rounds: int, through: Route = "direct"
) -> dict[tuple[str, int], Timing]:
    """The step commit of each contestant at each length of history, all in turn."""
    contestants = {kind: kind(arena.place, through) for kind in lengths}
    loops = {
        (kind.name, length): Loop(contestants[kind], length) for kind in lengths for length in lengths[kind]
    }
    arena.place.settle(*{kind.database for kind in lengths})
    tasks = [
        Task(f"{name}/{length}", loop.step, loop.begin, 2 if BY_NAME[name].slow else 10)
        for (name, length), loop in loops.items()
    ]
    timings = interleave(tasks, rounds)
    for contestant in contestants.values():
        contestant.close()
    return {key: timings[f"{key[0]}/{key[1]}"] for key in loops}


def measure_steps(arena: Arena, scale: Scale, results: Results) -> None:
    """The step commit as the history grows."""
    lengths: dict[type[Contestant], Sequence[int]] = dict.fromkeys(CORE, scale.histories)
    lengths |= dict.fromkeys(SHARED, (100,))
    lengths |= dict.fromkeys(installed_peers(), scale.peer_histories)
    timings = time_steps(arena, lengths, scale.rounds)
    for length in scale.histories:
        some = {name: timing for (name, at), timing in timings.items() if at == length}
        results.add_timings("step commit", f"history {length:,}", some)
    longest = max(scale.histories)
    for kind in CORE:
        ends = {
            kind.name: timings[kind.name, longest],
            "history 0": timings[kind.name, 0],
        }
        results.add_timings("step commit", f"{longest:,} against 0", ends, "history 0", only=kind.name)


def measure_delayed_steps(arena: Arena, scale: Scale, results: Results) -> None:
    """The step commit when the server is a millisecond away."""
    kinds = [*CORE, *SHARED, *installed_peers()]
    _measure_round_trip(arena, scale, results)
    timings = time_steps(arena, dict.fromkeys(kinds, (100,)), scale.rounds, "delayed")
    some = {name: timing for (name, _), timing in timings.items()}
    results.add_timings("step commit, 1 ms away", "history 100", some)


def _measure_round_trip(arena: Arena, scale: Scale, results: Results) -> None:
    ways: tuple[Route, ...] = ("direct", "delayed")
    connections = {way: ByHand(arena.place, way) for way in ways}
    timings = interleave([Task(way, one.ping) for way, one in connections.items()], scale.rounds)
    results.add_timings("step commit, 1 ms away", "one round trip", timings, "direct")
    for one in connections.values():
        one.close()


def measure_operations(arena: Arena, scale: Scale, results: Results) -> None:
    """Everything else that an agent's loop or a page of a product does."""
    kinds: list[type[Contestant]] = [ByHand, ByHandJsonb, Ours, *installed_peers()]
    contestants = [kind(arena.place) for kind in kinds]
    short = {one.name: new_session(one, payload.history(100)) for one in contestants}
    long = {one.name: new_session(one, payload.history(scale.long_history)) for one in contestants}
    for one in contestants:
        one.step(short[one.name], next(_steps))
    arena.place.settle(*(kind.database for kind in kinds))

    def timed(operation: str, method: str, call: Callable[[Any], object], repeat: int = 10) -> None:
        able = [one for one in contestants if hasattr(one, method) and not (one.lazy and method == "create")]
        tasks = [
            Task(one.name, lambda one=one: call(one), repeat=max(1, repeat // 5) if one.slow else repeat)  # type: ignore[misc]
            for one in able
        ]
        results.add_timings("operations", operation, interleave(tasks, scale.rounds))

    data = {"progress": 1, "text": payload.text(200)}
    statuses = {one.name: cycle([("active", "paused"), ("paused", "active")]) for one in contestants}
    timed("create", "create", lambda one: one.create(new_id()))
    timed("append 2 messages", "append", lambda one: one.append(short[one.name], next(_steps).messages))
    own = {one.name: new_session(one, payload.history(1000)) for one in contestants if hasattr(one, "append")}
    timed(APPEND_TO_1000, "append", lambda one: one.append(own[one.name], next(_steps).messages))
    timed("emit an event", "emit_event", lambda one: one.emit_event(short[one.name], data))
    timed(
        "compare and set the status",
        "compare_and_set",
        lambda one: one.compare_and_set(short[one.name], *next(statuses[one.name])),
    )
    timed("load the state", "load_state", lambda one: one.load_state(short[one.name]))
    timed("latest 50 messages", "latest", lambda one: one.latest(long[one.name], 50))
    timed(f"all {scale.long_history:,} messages", "load_all", lambda one: one.load_all(long[one.name]), 2)
    for one in contestants:
        one.close()
