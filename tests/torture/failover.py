"""The primary's machine is gone; its standby is promoted, and the application goes on with that one.

The standby is some milliseconds away. With synchronous replication no acknowledged write may be lost. The
same is done with asynchronous replication as a control: if that loses nothing, this shows nothing.
"""

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection, connections

from helix_sessions.exceptions import Fenced
from helix_sessions.store import SessionStore
from tests.pgbouncer import Pooler, pgbouncer
from tests.postgres import Server
from tests.torture.expected import assert_healthy
from tests.torture.lanes import Figures, Lane, fork_context, wait_for_writes
from tests.torture.proxy import distant
from tests.torture.stops import Stop
from tests.torture.writer import LOST, Writer

DISTANCE = 0.05
"""Seconds between the primary and its standby, one way."""
OWNERS = 2
OUTLIVED = "connections that outlived their primary"
LONGEST_PEACE = 0.5
"""Seconds between the first writes and the loss of the primary."""


def campaign(seed: int, stop: Stop, server: Server, *, pooled: bool = False) -> Figures:
    """`stop.rounds` failovers with a synchronous standby and as many with an asynchronous one. With `pooled`
    PgBouncer is led to the standby, and the application stays connected to that."""
    figures: Figures = Counter({"acknowledged writes lost": 0})
    slowest, total = 0.0, 0.0
    rounds = 0
    while stop.goes_on(rounds):
        for synchronous in (True, False):
            found, seconds = _fail_over(server, seed + rounds, synchronous, pooled)
            figures[OUTLIVED] += found.pop(OUTLIVED, 0)
            if synchronous:
                slowest, total = max(slowest, seconds), total + seconds
                figures += found
            else:
                figures["control: acknowledged writes"] += found["acknowledged writes"]
                figures["control: lost with an asynchronous standby"] += found["acknowledged writes lost"]
        rounds += 1
    figures["failovers"] = rounds
    figures["milliseconds until the next write, mean"] = round(total / max(rounds, 1) * 1000)
    figures["milliseconds until the next write, longest"] = round(slowest * 1000)
    figures.setdefault("acknowledged writes lost", 0)
    if not pooled:
        del figures[OUTLIVED]
    return figures


def _fail_over(primary: Server, seed: int, synchronous: bool, pooled: bool) -> tuple[Figures, float]:
    """One failover. The primary that is lost is a copy, too, so that the next round begins as this one."""
    choice = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="helix_sessions_ha_") as directory:
        places = [Path(directory) / name for name in ("first", "second")]
        Path(directory).chmod(0o711)  # the server's user passes through
        for place in places:
            place.mkdir()
        primary.stop()
        names = "standby" if synchronous else ""
        first = primary.copy_in(places[0], synchronous_standby_names=names)
        with distant(first.port, DISTANCE) as (port, cut_off):
            second = first.standby_in(places[1], port)
            try:
                first.start()
                second.start()
                _wait_for_replication(first, "sync" if synchronous else "async")
                with _way_to(first, second, pooled) as pooler:
                    return _under_load(first, second, cut_off, choice, synchronous, pooler)
            finally:
                connections.close_all()
                second.stop("immediate")
                first.stop("immediate")


@contextmanager
def _way_to(first: Server, second: Server, pooled: bool) -> Iterator[Pooler | None]:
    if not pooled:
        go_to(first.port, second.port)
        yield None
        return
    with pgbouncer(first.url) as pooler:
        connections.settings["default"]["DISABLE_SERVER_SIDE_CURSORS"] = True
        go_to(pooler.port)
        yield pooler
        connections.close_all()


def _under_load(
    first: Server,
    second: Server,
    cut_off: Any,
    choice: random.Random,
    synchronous: bool,
    pooler: Pooler | None,
) -> tuple[Figures, float]:
    over, written = fork_context.Event(), fork_context.Value("q", 0)
    lanes = [Lane(append_until, over, written)]
    rest, resting = fork_context.Event(), fork_context.Semaphore(0)
    if pooler is not None:
        lanes += [Lane(own_until, over, rest, resting, f"owned {number}") for number in range(OWNERS)]
    if synchronous:  # without, what is found would rightly not be what was acknowledged
        lanes.append(Lane(write_until, over, choice.random()))
    try:
        wait_for_writes(written, 20)
        time.sleep(choice.uniform(0, LONGEST_PEACE))
        if pooler is not None:
            rest.set()
            assert all(resting.acquire(timeout=60) for _ in range(OWNERS))
        first.kill()
        cut_off()
        lost_at, before = time.monotonic(), written.value
        second.promote()
        if pooler is not None:
            pooler.lead_to(second.url)
            rest.clear()
        wait_for_writes(written, before + 1)
        seconds = time.monotonic() - lost_at
        wait_for_writes(written, before + 20)
        over.set()
        found: Figures = sum((lane.figures() for lane in lanes), Counter())
    finally:
        for lane in lanes:
            lane.end()
    assert_healthy(SessionStore())
    return found, seconds


def append_until(over: Any, written: Any) -> Figures:
    """Append to one log, and count afterwards what of it is there."""
    store = SessionStore()
    acknowledged: set[int] = set()
    number = 1
    while not over.is_set():
        try:
            store.attach("log")
            store.emit_event("log", "note", {"n": number}, idempotency_key=str(number))
        except LOST:
            connection.close()
            time.sleep(0.005)  # then the same once more, under the same key
        else:
            acknowledged.add(number)
            written.value += 1
            number += 1
    found = [event.data["n"] for event in store.get_events("log", types=["note"])]
    assert len(found) == len(set(found)), "an event is there twice"
    assert_healthy(store, "log")
    lost = acknowledged - set(found)
    return Counter({"acknowledged writes": len(acknowledged), "acknowledged writes lost": len(lost)})


def own_until(over: Any, rest: Any, resting: Any, session_id: str) -> Figures:
    """Drive a session under a lease, and rest while the primary is lost: the pooler then keeps the
    connection, and with it whatever is remembered."""
    store = SessionStore()
    mine, used = store, None
    while not over.is_set():
        if rest.is_set():
            resting.release()
            while rest.is_set() and not over.is_set():
                time.sleep(0.005)
        try:
            store.attach(session_id)
            mine = store.fenced(store.acquire_lease(session_id, "owner", 60)) if mine is store else mine
            mine.append_messages(session_id, [{"role": "user", "content": "hello"}] * 3)
            mine.emit_event(session_id, "note")
            used = used or connection.connection
        except Fenced:
            mine = store  # the lease is of a history that was lost
        except LOST:
            pass
        time.sleep(0.01)
    assert_healthy(store, session_id)
    return Counter({OUTLIVED: used is connection.connection})


def write_until(over: Any, seed: float) -> Figures:
    """Random calls, all of them looked at after the failover."""
    writer = Writer("w", random.Random(seed))
    while not over.is_set():
        try:
            writer.go()
        except LOST:
            writer.backend = None  # it was on the machine that is gone
            writer.go_on_after_losing_the_connection()
    return writer.figures


def go_to(*ports: int) -> None:
    """The application knows all of them and asks for the one that takes writes."""
    settings = connections.settings["default"]
    settings["HOST"] = ",".join(["127.0.0.1"] * len(ports))
    settings["PORT"] = ",".join(map(str, ports))
    settings["OPTIONS"] = {"target_session_attrs": "read-write", "connect_timeout": 2}


def _wait_for_replication(server: Server, state: str) -> None:
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as direct:
        while True:
            rows = direct.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
            if rows == [(state,)]:
                return
            time.sleep(0.02)
