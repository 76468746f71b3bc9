"""What a large state costs to keep, and what cloning and deleting cost."""

import json
from dataclasses import replace
from typing import Any

from bench import payload
from bench.contestants.by_hand import ByHand
from bench.contestants.ours import Ours
from bench.databases import Arena
from bench.measure import Task, interleave
from bench.operations import new_id, new_session
from bench.payload import Step
from bench.place import Place
from bench.results import Results
from bench.scale import Scale

LARGE = 1024 * 1024
KEYS = 256
MESSAGES = 1000
STEPS_BY_HAND = 50


def measure_growth(arena: Arena, scale: Scale, results: Results) -> None:
    """A state of 1 MB of which each step changes one key; then a session's end and its copy."""
    stored, exact = _bytes_of_ours(arena.place, scale.growth_steps)
    sizes = {
        ByHand.name: [_bytes_by_hand(arena.place) / STEPS_BY_HAND],
        Ours.name: [stored / scale.growth_steps],
    }
    results.add_numbers("growth", "stored per step, 1 MB state", "bytes", sizes)
    total = {Ours.name: [stored / scale.growth_steps * 1000 / 1e6]}
    results.add_numbers("growth", "stored in 1,000 steps", "MB", total)
    results.add_numbers("growth", "checkpoints read back", "of 10", {Ours.name: [exact]})
    _measure_whole_sessions(arena.place, scale, results)


def _large_states(steps: int) -> Any:
    state = payload.state(LARGE, KEYS)
    for number in range(steps):
        state = {**state, f"part_{number % KEYS}": payload.text(LARGE // KEYS - 14)}
        yield state


def _bytes_of_ours(place: Place, steps: int) -> tuple[int, int]:
    ours = Ours(place)
    session_id = new_id()
    state = ours.store.create_session(session_id, agent_type="bench", custom_state=payload.state(LARGE, KEYS))
    before = _size(place, ours.database)
    remembered: dict[Any, str] = {}
    for number, custom in enumerate(_large_states(steps)):
        committed = ours.store.save_state_and_promote_staging(
            session_id, replace(state, custom_state=custom, step_count=number + 1)
        )
        if number % (steps // 10) == 0:
            remembered[committed.checkpoint_id] = json.dumps(custom)
    stored = _size(place, ours.database) - before
    exact = sum(
        json.dumps(ours.store.get_checkpoint(session_id, key).state.custom_state) == text
        for key, text in remembered.items()
    )
    ours.close()
    return stored, exact


def _bytes_by_hand(place: Place) -> int:
    by_hand = ByHand(place)
    session_id = new_session(by_hand)
    before = _size(place, by_hand.database)
    messages = next(payload.steps()).messages
    for custom in _large_states(STEPS_BY_HAND):
        by_hand.step(session_id, Step(messages, custom))
    stored = _size(place, by_hand.database) - before
    by_hand.close()
    return stored


def _size(place: Place, database: str) -> int:
    return sum(place.table_bytes(database).values())


def _measure_whole_sessions(place: Place, scale: Scale, results: Results) -> None:
    contestants = [ByHand(place), Ours(place)]
    history = payload.history(MESSAGES)
    sources = {one.name: new_session(one, history) for one in contestants}
    doomed: dict[str, str] = {}
    place.settle(*(one.database for one in contestants))

    def condemn(one: Any) -> None:
        doomed[one.name] = new_session(one, history)

    clones = [Task(o.name, lambda o=o: o.clone(sources[o.name], new_id()), repeat=2) for o in contestants]  # type: ignore[misc]
    results.add_timings("growth", f"clone {MESSAGES:,} messages", interleave(clones, scale.rounds // 2))
    deletions = [
        Task(o.name, lambda o=o: o.delete(doomed[o.name]), lambda o=o: condemn(o), repeat=1)  # type: ignore[misc]
        for o in contestants
    ]
    results.add_timings("growth", f"delete {MESSAGES:,} messages", interleave(deletions, scale.rounds // 2))
    for one in contestants:
        one.close()
