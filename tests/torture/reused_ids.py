"""The primary is lost with what its standby did not have, and the numbers of the lost transactions are handed
out again. A pooler hides all of it from its clients: their connections stay.

One client was the session's owner before; it wakes up when the row it wrote last has been written by
somebody else, in a transaction of the same number. Whatever it remembers of that row is of another history.
"""

import random
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psycopg
from django.conf import settings
from django.db import connections
from django.test import override_settings

from helix_sessions.exceptions import Fenced
from helix_sessions.store import SessionStore
from tests.pgbouncer import Pooler, pgbouncer
from tests.postgres import Server
from tests.torture.expected import assert_healthy
from tests.torture.lanes import Figures
from tests.torture.stops import Stop

SESSION = "s"
MESSAGE = {"role": "user", "content": "hello"}
_ROW = f"SELECT xmin::text::bigint FROM helix_sessions_session WHERE session_id = '{SESSION}'"


def campaign(seed: int, stop: Stop, server: Server) -> Figures:
    """`stop.rounds` times. Every other time Django is told of the pooler; otherwise the store finds out."""
    figures: Figures = Counter()
    rounds = 0
    unprepared = {**settings.HELIX_SESSIONS, "PREPARED_STATEMENTS": False, "STREAM_NOTIFY": False}
    with override_settings(HELIX_SESSIONS=unprepared):
        SessionStore().create_session(SESSION, agent_type="agent")
        while stop.goes_on(rounds):
            figures += _lose(server, random.Random(f"{seed} {rounds}"), told=bool(rounds % 2))
            rounds += 1
    return figures


def _lose(primary: Server, choice: random.Random, *, told: bool) -> Figures:
    with tempfile.TemporaryDirectory(prefix="helix_sessions_reuse_") as directory:
        places = [Path(directory) / name for name in ("first", "second")]
        Path(directory).chmod(0o711)  # the server's user passes through
        for place in places:
            place.mkdir()
        connections.close_all()
        primary.stop()
        first, second = (primary.copy_in(place, autovacuum=False) for place in places)
        first.start()
        try:
            with pgbouncer(first.url) as pooler:
                _connect(pooler.port, pooled=told)
                return _in_two_histories(first, second, pooler, choice)
        finally:
            connections.close_all()
            first.stop("immediate")
            second.stop("immediate")


def _in_two_histories(first: Server, second: Server, pooler: Pooler, choice: random.Random) -> Figures:
    store = SessionStore()
    mine = store.fenced(store.acquire_lease(SESSION, "mine", 0))
    lost = choice.randrange(3, 12)
    for _ in range(lost):
        mine.append_messages(SESSION, [MESSAGE])
    client = connections["default"].connection
    with psycopg.connect(first.url, autocommit=True) as direct:
        [[number]] = direct.execute(_ROW).fetchall()
    first.kill()
    second.start()
    pooler.lead_to(second.url)
    writes = choice.randrange(2, lost)
    _use_up(second, number - writes)
    _take_over(second, writes)
    with psycopg.connect(second.url, autocommit=True) as direct:
        assert direct.execute(_ROW).fetchall() == [(number,)], "the row has another number: nothing is shown"
    assert connections["default"].connection is client
    before = store.get_session_head(SESSION)
    with suppress(Fenced):
        mine.append_messages(SESSION, [MESSAGE])
    events = [event.seq for event in store.get_events(SESSION)]
    assert store.get_session_head(SESSION) == before, f"the fenced owner wrote, and the log is {events}"
    store.append_messages(SESSION, [MESSAGE])
    assert connections["default"].connection is client, "the pooler did not hide the failover"
    assert_healthy(store, SESSION)
    assert [event.seq for event in store.get_events(SESSION)] == list(range(1, before.head_seq + 2))
    return Counter({"late writes refused": 1})


def _use_up(server: Server, last: int) -> None:
    """Hand out transaction ids up to this one."""
    with psycopg.connect(server.url, autocommit=True) as direct:
        while True:
            [[number]] = direct.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
            assert number <= last, f"{number} was handed out, and {last} is wanted"
            if number == last:
                return


def _take_over(server: Server, writes: int) -> None:
    """Past the pooler: so many writes, each a transaction, the first a new lease."""
    connections.settings["direct"] = {**connections.settings["default"], "PORT": str(server.port)}
    try:
        store = SessionStore("direct")
        mine = store.fenced(store.acquire_lease(SESSION, "another", 60))
        for _ in range(writes - 1):
            mine.append_messages(SESSION, [MESSAGE])
    finally:
        connections["direct"].close()
        del connections["direct"], connections.settings["direct"]


def _connect(port: int, *, pooled: bool) -> None:
    database = connections.settings["default"]
    database |= {"HOST": "127.0.0.1", "PORT": str(port), "DISABLE_SERVER_SIDE_CURSORS": pooled}
