"""Processes work on one session at once; what they were told is checked for linearizability."""

import random
import tempfile
from collections import Counter
from pathlib import Path
from pickle import dumps, loads
from typing import Any

from django.conf import settings
from django.test import override_settings

from helix_sessions.store import SessionStore
from tests.torture.expected import assert_healthy
from tests.torture.families import FAMILIES
from tests.torture.lanes import Figures, fork_context, in_lanes
from tests.torture.linearizability import Operation
from tests.torture.rows import Row
from tests.torture.sequential import explained
from tests.torture.sequential_inbox import INBOX_CALLS, LIMIT
from tests.torture.sequential_leases import LEASE_CALLS
from tests.torture.stops import Stop

LANES = 5
CALLS_OF_A_LANE = 12


def campaign(seed: int, stop: Stop) -> Figures:
    """Check so many histories; each has a session of its own and `LANES * CALLS_OF_A_LANE` calls."""
    with tempfile.TemporaryDirectory() as directory:
        barrier, over = fork_context.Barrier(LANES), fork_context.Event()
        with override_settings(HELIX_SESSIONS={**settings.HELIX_SESSIONS, "INBOX_LIMIT": LIMIT}):
            in_lanes(LANES, _take_part, seed, stop, directory, barrier, over)
        figures: Figures = Counter({"anomalies": 0})
        for place in sorted(Path(directory).glob("0-*")):
            history = [
                operation
                for lane in range(LANES)
                for operation in loads((Path(directory) / f"{lane}{place.name[1:]}").read_bytes())
            ]
            initial, *operations = history
            _check(initial, operations)
            figures["histories"] += 1
            figures["operations checked"] += len(operations)
            figures["that overlapped another"] += _overlapping(operations)
            figures.update(_kinds(operations))
    assert_healthy(SessionStore())
    return figures


def _check(initial: Row, history: list[Operation]) -> None:
    order, left = explained(history, initial)
    if left:
        raise AssertionError(
            "Not linearizable.\n" + "\n".join([*map(repr, order), "left:", *map(repr, left)])
        )


def _overlapping(history: list[Operation]) -> int:
    """How many calls another was made beside: a history without any shows nothing."""
    return sum(
        any(one is not other and one.start < other.end and other.start < one.end for other in history)
        for one in history
    )


def _kinds(history: list[Operation]) -> Figures:
    """How many were about leases, made under one, or about the inbox."""
    return Counter(
        kind
        for operation in history
        for kind, belongs in {
            "about leases": operation.call in LEASE_CALLS,
            "under a lease": "lease" in operation.arguments and operation.call not in LEASE_CALLS,
            "that a fence refused": operation.result == "Fenced",
            "about the inbox": operation.call in INBOX_CALLS,
        }.items()
        if belongs
    )


def _take_part(lane: int, seed: int, stop: Stop, directory: str, barrier: Any, over: Any) -> Figures:
    store, number = SessionStore(), 0
    while True:
        session = f"race-{number}"
        choice = random.Random(f"{seed} {number} {lane}")
        family = FAMILIES[number % len(FAMILIES)]
        record: list[Any] = []
        if lane == 0:
            if not stop.goes_on(number):
                over.set()
            else:
                record.append(family.prepare(store, session))
        barrier.wait(60)
        if over.is_set():
            return Counter()
        caller = family.caller(store, session, lane, choice)
        for _ in range(CALLS_OF_A_LANE):
            record.append(caller.make(choice.choice(family.calls)))
        (Path(directory) / f"{lane}-{number}").write_bytes(dumps(record))
        barrier.wait(60)
        number += 1
