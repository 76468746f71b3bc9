"""Writers and a live reader behind PgBouncer, which hands every transaction to another connection."""

import random
import time
from collections import Counter

from django.db import connection, connections

from helix_sessions.store import SessionStore
from helix_sessions.stream.hub import hub
from tests.pgbouncer import pgbouncer
from tests.torture.expected import assert_healthy
from tests.torture.lanes import Figures, Lane
from tests.torture.stops import Stop
from tests.torture.writer import Writer

WRITERS = 4
POOL = 2
"""Fewer connections than writers."""


def campaign(seed: int, stop: Stop) -> Figures:
    """Make `stop.rounds` calls, and as many that all go to one session that is followed live."""
    settings = connections.settings["default"]
    address = {name: settings[name] for name in ("HOST", "PORT")}
    server = f"postgresql://{settings['USER']}:{settings['PASSWORD']}@{settings['HOST']}:{settings['PORT']}/x"
    SessionStore().create_session("followed", agent_type="agent")
    connections.close_all()
    with pgbouncer(server, POOL) as pooler:
        settings |= {"HOST": "127.0.0.1", "PORT": str(pooler.port)}
        settings["DISABLE_SERVER_SIDE_CURSORS"] = True
        share = stop.share(WRITERS)
        reader = Lane(_follow, share.rounds * WRITERS, share)
        lanes = [reader, *(Lane(_write, number, seed, share) for number in range(WRITERS))]
        try:
            figures: Figures = sum((lane.figures() for lane in lanes), Counter())
        finally:
            for lane in lanes:
                lane.end()
            settings |= address
            connections.close_all()
    assert_healthy(SessionStore())
    return figures


def _write(lane: int, seed: int, stop: Stop) -> Figures:
    writer = Writer(f"w{lane}", random.Random(f"{seed} {lane}"))
    backends = set()
    for number in range(stop.rounds):
        writer.go()
        writer.store.emit_event("followed", "note", {"lane": lane, "n": number})
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            backends.add(cursor.fetchone()[0])
    assert not writer.check()
    return writer.figures + Counter({"writers that changed connections": len(backends) > 1})


def _follow(events: int, stop: Stop) -> Figures:
    """Each event once and in order, by polling, since nothing can be listened for."""
    seen: list[int] = []
    last: dict[int, int] = {}
    begun = time.monotonic()
    with SessionStore().subscribe("followed", after=1) as tail:
        while len(seen) < events:
            event = next(tail)
            assert hub.poll_interval("default") == 1.0, "it does not poll"
            seen.append(event.seq)
            assert event.data["n"] == last.get(event.data["lane"], -1) + 1
            last[event.data["lane"]] = event.data["n"]
    assert seen == list(range(2, 2 + events))
    assert time.monotonic() - begun < stop.seconds
    return Counter({"events followed live": len(seen)})
