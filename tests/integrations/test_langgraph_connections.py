"""On which connections a graph stores, and when they are closed."""

import asyncio
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from helix_sessions.exceptions import StoreUnavailable
from helix_sessions.integrations.langgraph import DjangoSaver
from helix_sessions.store import SessionStore
from tests.integrations.test_langgraph import chat, config, texts
from tests.parallel import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def connections() -> set[int]:
    """Which connections the database has, but for ours and the notifier's."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND application_name <> 'helix_sessions'"
        )
        return {pid for [pid] in cursor.fetchall()}


def one(thread: str) -> Any:
    return {"messages": [("user", thread)]}, config(thread)


def test_many_async_graphs_at_once() -> None:
    graph = chat(DjangoSaver())

    async def run() -> list[Any]:
        for _ in range(3):
            states = await asyncio.gather(*(graph.ainvoke(*one(f"t{number}")) for number in range(20)))
        return states

    for number, state in enumerate(asyncio.run(run())):
        said = f"t{number}"
        assert texts(state) == [said, "answer 1", said, "answer 3", said, "answer 5"]
        assert texts(chat(DjangoSaver()).get_state(config(said)).values) == texts(state)
    assert SessionStore().examine_sessions(deep=True) == []


@pytest.mark.skipif(connection.vendor != "postgresql", reason="a file has one writer at a time")
def test_async_writes_of_a_thread_share_a_connection_which_knows_what_it_wrote_last() -> None:
    writers: defaultdict[str, set[threading.Thread]] = defaultdict(set)

    class Watched(SessionStore):
        def put_notes(self, session_id: str, *args: Any, **options: Any) -> Any:
            writers[session_id].add(threading.current_thread())
            return super().put_notes(session_id, *args, **options)

    graph = chat(DjangoSaver(store=Watched()))

    async def run() -> None:
        for _ in range(3):
            await asyncio.gather(*(graph.ainvoke(*one(f"t{number}")) for number in range(20)))

    loop = asyncio.new_event_loop()
    loop.run_until_complete(run())
    loop.close()  # without what `asyncio.run` does before
    asyncio.run(run())
    assert {len(each) for each in writers.values()} == {2}  # one in each loop
    assert len(set[threading.Thread]().union(*writers.values())) > 2
    assert not [each for each in threading.enumerate() if each.name.startswith("langgraph-lane")]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="a file has no connections to count")
def test_a_connection_is_closed_with_the_thread_that_opened_it() -> None:
    graph = chat(DjangoSaver())
    before = connections()
    for number in range(3):
        graph.invoke(*one(f"sync {number}"))
        wait_until(lambda: connections() <= before)
        asyncio.run(graph.ainvoke(*one(f"async {number}")))
        wait_until(lambda: connections() <= before)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="a file has no connections to lose")
def test_a_thread_whose_connection_was_lost_opens_another() -> None:
    saver = DjangoSaver()
    chat(saver).invoke(*one("t"))

    def lose() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            [process] = cursor.fetchone()
        killer.submit(kill, process).result()

    def kill(process: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [process])
        connection.close()

    with ThreadPoolExecutor(1) as worker, ThreadPoolExecutor(1) as killer:
        assert worker.submit(saver.get_tuple, config("t")).result() is not None
        worker.submit(lose).result()
        with pytest.raises(StoreUnavailable):
            worker.submit(saver.get_tuple, config("t")).result()
        assert worker.submit(saver.get_tuple, config("t")).result() is not None


def test_an_async_graph_that_sync_code_waits_for_is_in_its_transaction(store: SessionStore) -> None:
    graph = chat(DjangoSaver())
    with transaction.atomic():
        async_to_sync(graph.ainvoke)(*one("t"))
        assert store.session_exists("t")
        transaction.set_rollback(True)
    assert not store.session_exists("t")
    assert texts(async_to_sync(graph.ainvoke)(*one("t"))) == ["t", "answer 1"]
