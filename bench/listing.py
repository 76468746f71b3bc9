"""The newest fifty sessions of few and of many."""

from bench.contestants.by_hand import ByHand
from bench.contestants.ours import Ours
from bench.databases import LISTS, Arena
from bench.fill import copy_session
from bench.measure import Task, interleave
from bench.operations import new_session
from bench.results import Results
from bench.scale import Scale


def measure_listing(arena: Arena, scale: Scale, results: Results) -> None:
    """How the list grows with what is listed."""
    place = arena.place
    tasks, contestants = [], []
    for database, size in zip(LISTS, (scale.small_list, scale.large_list), strict=True):
        by_hand = ByHand(place, database=database)
        ours = Ours(place, using=database)
        contestants += [by_hand, ours]
        copy_session(place, database, "session", new_session(by_hand), size)
        copy_session(place, database, "helix_sessions_session", new_session(ours), size)
        tasks.append(Task(f"{by_hand.name}/{size}", by_hand.list_newest))
        tasks.append(Task(f"{ours.name}/{size}", ours.list_newest))
    place.settle(*LISTS)
    timings = interleave(tasks, scale.rounds)
    for contestant in contestants:
        contestant.close()
    small, large = scale.small_list, scale.large_list
    for size in (small, large):
        some = {name: timings[f"{name}/{size}"] for name in (ByHand.name, Ours.name)}
        results.add_timings("list", f"newest 50 of {size:,}", some)
    for name in (ByHand.name, Ours.name):
        ends = {name: timings[f"{name}/{large}"], "few": timings[f"{name}/{small}"]}
        results.add_timings("list", f"{large:,} against {small:,}", ends, "few", only=name)
