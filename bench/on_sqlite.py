"""The same on SQLite, against the `sqlite3` module."""

from bench import payload
from bench.contestants.ours import Ours
from bench.contestants.sqlite_by_hand import SqliteByHand
from bench.databases import Arena
from bench.measure import Task, interleave
from bench.operations import Loop, new_session
from bench.results import Results
from bench.scale import Scale


def measure_sqlite(arena: Arena, scale: Scale, results: Results) -> None:
    """Step commit, append and latest messages, in files beside each other."""
    contestants = [SqliteByHand(arena.place), Ours(arena.place, using="sqlite")]
    base = SqliteByHand.name
    loops = [Loop(one, 100) for one in contestants]
    steps = interleave([Task(loop.contestant.name, loop.step, loop.begin) for loop in loops], scale.rounds)
    results.add_timings("SQLite", "step commit, history 100", steps, base)
    sessions = {one.name: new_session(one, payload.history(1000)) for one in contestants}
    made = payload.steps()
    appends = [
        Task(one.name, lambda one=one: one.append(sessions[one.name], next(made).messages))  # type: ignore[misc]
        for one in contestants
    ]
    results.add_timings("SQLite", "append 2 messages", interleave(appends, scale.rounds), base)
    reads = [
        Task(one.name, lambda one=one: one.latest(sessions[one.name], 50))  # type: ignore[misc]
        for one in contestants
    ]
    results.add_timings("SQLite", "latest 50 messages", interleave(reads, scale.rounds), base)
    for one in contestants:
        one.close()
