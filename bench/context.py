"""What the model sees of a session with a long past, against one that has only what is seen."""

from typing import Any

from bench import payload
from bench.contestants.ours import Ours
from bench.databases import Arena
from bench.measure import Task, interleave
from bench.operations import new_session
from bench.results import Results
from bench.scale import Scale

PAST = 100_000
VISIBLE = 60
AFTER = f"{VISIBLE} messages after {PAST:,}"


def measure_context(arena: Arena, scale: Scale, results: Results) -> None:
    """Both are told the same and have the same compaction; one has a hundred thousand messages before it."""
    from helix_sessions.runtime import CompactionPolicy, FixedText

    ours = Ours(arena.place)
    sources = [FixedText("rules", payload.text(2_000))]
    policy = CompactionPolicy(None, keep_recent=0)
    visible = payload.history(VISIBLE)

    def summarize(request: Any) -> str:
        return payload.text(4_000)

    def made(past: int) -> str:
        session_id = new_session(ours, payload.history(past))
        ours.store.compact(session_id, summarize, policy)
        ours.store.reconcile_context(session_id, sources)
        ours.fill(session_id, visible)
        return session_id

    long, short = made(PAST), made(2)
    arena.place.settle(ours.database)
    tasks = [
        Task(ours.name, lambda: ours.store.get_context(long)),
        Task("short", lambda: ours.store.get_context(short)),
    ]
    results.add_timings("context", AFTER, interleave(tasks, scale.rounds), "short")
    told = [
        Task(ours.name, lambda: ours.store.reconcile_context(long, sources)),
        Task("short", lambda: ours.store.reconcile_context(short, sources)),
    ]
    results.add_timings("context", "nothing new to tell", interleave(told, scale.rounds), "short")
    ours.close()
