"""The numbers of transactions end and begin again, while a connection writes a row it remembers."""

import random
from collections import Counter

import psycopg
from django.db import connections

from helix_sessions.store import SessionStore
from helix_sessions.store.engine import remembered_rows
from tests.postgres import Server
from tests.torture.expected import assert_healthy
from tests.torture.lanes import Figures
from tests.torture.stops import Stop

LAST = 2**32 - 1


def campaign(seed: int, stop: Stop, server: Server) -> Figures:
    """`stop.rounds` writes, in the middle of which it happens."""
    store = SessionStore()
    store.create_session("s", agent_type="agent")
    connections.close_all()
    server.restart_with_next_transaction(LAST - stop.rounds // 2)
    choice, figures = random.Random(seed), Counter({"writes": 0})
    before = 0
    while stop.goes_on(figures["writes"]):
        if choice.random() < 0.1:
            _write_past_the_store(server)
        store.append_messages("s", [{"role": "user", "content": "hello"}])
        known = remembered_rows.recall(connections["default"], "s")
        assert known is not None
        figures["writes"] += 1
        figures["times the numbers began again"] += int(known.row_version) < before
        before = int(known.row_version)
    assert store.get_message_count("s") == figures["writes"]
    assert_healthy(store)
    return figures


def _write_past_the_store(server: Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as direct:
        direct.execute("UPDATE helix_sessions_session SET resume_count = resume_count + 1")
