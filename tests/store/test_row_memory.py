"""How much a connection remembers, and when it forgets: it is bounded, and goes with the connection."""

import gc
import os
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections
from django.test import override_settings

from helix_sessions.store import SessionStore
from helix_sessions.store.engine import remembered_rows
from tests.parallel import run_processes, run_threads
from tests.pgbouncer import MISSING, find_pgbouncer, pgbouncer
from tests.store.statements import MESSAGE, assert_gapless, needs_memory, reads_the_row
from tests.torture.short_forms import needs_postgresql

pytestmark = pytest.mark.django_db(transaction=True)

MEGABYTE = 1024 * 1024


@pytest.fixture(autouse=True)
def memory() -> None:
    needs_memory()


def held_after(act: Callable[[], Any]) -> int:
    """How many more bytes this process holds after it."""
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    act()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def write_to(store: SessionStore, names: list[str], size: int) -> None:
    for name in names:
        store.create_session(name, agent_type="agent", metadata={"text": "x" * size})
        store.append_messages(name, [MESSAGE])


def remembers_many(engine: str) -> None:
    """On SQLite every write changes the file, and what was known before is of no use."""
    if engine == "sqlite":
        pytest.skip("the rows of one write are remembered")


def test_a_large_row_is_not_remembered(store: SessionStore, traced: None):
    write_to(store, ["warm"], 10)
    assert held_after(lambda: write_to(store, [f"s{n}" for n in range(24)], MEGABYTE)) < 2 * MEGABYTE
    assert reads_the_row(store, "s23")
    assert reads_the_row(store, "s23")
    assert reads_the_row(store, "warm") == (connection.vendor == "sqlite")
    assert not reads_the_row(store, "warm")


def test_a_row_that_becomes_large_is_forgotten(store: SessionStore):
    write_to(store, ["s"], 10)
    assert not reads_the_row(store)
    store.patch_metadata("s", {"text": "x" * MEGABYTE})
    assert reads_the_row(store)
    assert_gapless(store)


def test_many_rows_take_a_bounded_room(store: SessionStore, engine: str, traced: None):
    remembers_many(engine)
    write_to(store, ["warm"], 10)
    assert held_after(lambda: write_to(store, [f"s{n}" for n in range(250)], 24 * 1024)) < 4 * MEGABYTE
    assert not reads_the_row(store, "s249")
    assert reads_the_row(store, "s0")


def test_many_small_rows_are_so_many(store: SessionStore, engine: str):
    remembers_many(engine)
    write_to(store, [f"s{n}" for n in range(remembered_rows.MOST_ROWS + 1)], 0)
    assert not reads_the_row(store, "s1")
    assert reads_the_row(store, "s0")


def test_the_row_written_longest_ago_goes_first(store: SessionStore, engine: str):
    remembers_many(engine)
    write_to(store, [f"s{n}" for n in range(remembered_rows.MOST_ROWS)], 0)
    store.append_messages("s0", [MESSAGE])
    write_to(store, ["next"], 0)
    assert not reads_the_row(store, "s0")
    assert reads_the_row(store, "s1")


def test_nothing_is_kept_of_rows_that_cannot_be_known(store: SessionStore, engine: str, traced: None):
    if engine != "sqlite":
        pytest.skip("about SQLite")
    write_to(store, ["warm"], 10)
    assert held_after(lambda: write_to(store, [f"s{n}" for n in range(60)], 24 * 1024)) < 200 * 1024


def test_closing_the_connection_frees_it(store: SessionStore, traced: None):
    write_to(store, ["warm"], 10)
    many = 60 if connection.vendor == "postgresql" else 1
    held = held_after(lambda: write_to(store, [f"s{n}" for n in range(many)], 24 * 1024))
    assert held > many * 24 * 1024
    assert held_after(connection.close) < -many * 24 * 1024


def test_the_next_connection_remembers_nothing(store: SessionStore):
    for close in (connection.close, lambda: connection.connection.close(), connections.close_all):
        write_to(store, [f"after {close}"], 0)
        assert not reads_the_row(store, f"after {close}")
        close()
        if connection.vendor == "sqlite" and connection.connection is not None:
            connection.close()  # nobody sees that a file was closed
        assert reads_the_row(store, f"after {close}")
        assert not reads_the_row(store, f"after {close}"), "it is not remembered any more"


def test_a_forked_process_remembers_nothing(store: SessionStore):
    store.create_session("s", agent_type="agent")
    assert run_processes(1, _write_and_fork) == [("remembered", "forgotten")]
    assert_gapless(store)


def _write_and_fork(_: int) -> tuple[str, str]:
    store = SessionStore()
    store.append_messages("s", [MESSAGE])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, _memory_of("s").encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with open(reading) as pipe:
        told = pipe.read()
    store.append_messages("s", [MESSAGE])
    return _memory_of("s"), told


def _memory_of(session_id: str) -> str:
    known = remembered_rows.recall(connections["default"], session_id)
    return "forgotten" if known is None else "remembered"


def test_processes_forked_after_the_first_use(store: SessionStore):
    store.create_session("s", agent_type="agent")
    assert run_processes(1, _fork_writers) == [[0, 0, 0]]
    assert store.get_message_count("s") == 2 + 3 * 5
    assert_gapless(store)


def _fork_writers(_: int) -> list[int]:
    """As a server that loads the application, asks the database something, and then forks its workers."""
    store = SessionStore()
    store.append_messages("s", [MESSAGE])
    store.append_messages("s", [MESSAGE])
    connections.close_all()
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            for _ in range(5):
                store.append_messages("s", [MESSAGE])
            connections.close_all()
            os._exit(0)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def another_alias(**settings: Any) -> SessionStore:
    """A store on the test database by way of an alias with settings of its own."""
    connections.settings["another"] = {**connections.settings["default"], **settings}
    return SessionStore("another")


def test_connections_of_a_pool_in_turn(store: SessionStore, engine: str):
    """psycopg's pool hands one connection to many threads; each comes back to it with what it knew."""
    needs_postgresql(engine)
    pytest.importorskip("psycopg_pool")
    store.create_session("s", agent_type="agent")
    assert run_processes(1, _write_in_turn) == [(1, [False, True, False])]
    assert store.get_message_count("s") == 8
    assert_gapless(store)


def _write_in_turn(_: int) -> tuple[int, list[bool]]:
    """How many connections four threads used, and what the last one had to read."""
    pooled = another_alias(OPTIONS={"pool": {"min_size": 1, "max_size": 1}})

    def write(_: int) -> int:
        pooled.append_messages("s", [MESSAGE])
        used = id(connections["another"].connection)
        connections["another"].close()
        return used

    used = {write(0), *run_threads(1, write), write(0), *run_threads(1, write)}
    pooled.append_messages("s", [MESSAGE])
    read = [reads_the_row(pooled)]
    connections["another"].close()
    read += [reads_the_row(pooled), reads_the_row(pooled)]
    connections["another"].close()
    connections["another"].close_pool()  # type: ignore[attr-defined]
    return len(used), read


def test_behind_a_pooler_nothing_is_remembered(store: SessionStore, engine: str):
    """Whether Django was told of it, or not."""
    needs_postgresql(engine)
    if find_pgbouncer() is None:
        pytest.skip(MISSING)
    database = connections["default"].settings_dict
    server = "postgresql://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**database)
    store.create_session("s", agent_type="agent")
    with pgbouncer(server) as pooler:
        for told in (True, False):
            assert run_processes(1, _write_behind, pooler.port, told) == [[True] * 3], told
    assert store.get_message_count("s") == 8
    assert_gapless(store)


def _write_behind(_: int, port: int, told: bool) -> list[bool]:
    behind = another_alias(HOST="127.0.0.1", PORT=str(port), DISABLE_SERVER_SIDE_CURSORS=told)
    with override_settings(HELIX_SESSIONS={"PREPARED_STATEMENTS": False}):
        behind.append_messages("s", [MESSAGE])
        return [reads_the_row(behind) for _ in range(3)]
