"""Readers in one process, writers in others: each event once and in order, whatever breaks."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.db import connection

from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.stream.hub import hub
from tests.parallel import Worker, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


def emit(writer: int, count: int) -> int:
    """In a process of its own."""
    store = SessionStore()
    for n in range(count):
        store.emit_event("s", "ticked", {"writer": writer, "n": n})
    return count


def publish(_: int, count: int) -> None:
    """In a process of its own: fragments, then an event."""
    store = SessionStore()
    for n in range(count):
        store.publish_fragment("s", n)
        time.sleep(0.005)
    store.publish_fragment("s", "x" * 10_000)
    store.emit_event("s", "ticked", {"n": count})


def start(function: Callable[..., Any], writers: int, *arguments: Any) -> list[Worker[Any]]:
    workers: list[Worker[Any]] = [Worker(function, n, *arguments) for n in range(writers)]
    for worker in workers:
        worker.wait_until_ready()
    for worker in workers:
        worker.go()
    return workers


def finish(workers: list[Worker[Any]]) -> None:
    for worker in workers:
        worker.result()
        worker.kill()


def check(seen: list[Any], writers: int, each: int, first: int = 2) -> None:
    assert [event.seq for event in seen] == list(range(first, first + writers * each))
    for writer in range(writers):
        assert [e.data["n"] for e in seen if e.data["writer"] == writer] == list(range(each))


def reconnecting(store: SessionStore, total: int, reconnects: int) -> list[Any]:
    """Read everything, leaving and coming back at random."""
    chance = random.Random(1)
    stops = [*sorted(chance.sample(range(1, total), reconnects)), total]
    seen: list[Any] = []
    for stop in stops:
        with store.subscribe("s", after=1 + len(seen)) as tail:
            while len(seen) < stop:
                seen.append(next(tail))
    return seen


@pytest.mark.parametrize(
    ("writers", "each", "reconnects"),
    [
        (4, 200, 10),
        pytest.param(8, 1250, 100, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_a_reader_that_comes_and_goes_sees_each_event_once_in_order(
    store: SessionStore, writers: int, each: int, reconnects: int
) -> None:
    store.create_session("s", agent_type="a")
    workers = start(emit, writers, each)
    check(reconnecting(store, writers * each, reconnects), writers, each)
    finish(workers)


def test_many_readers_on_an_event_loop_see_what_other_processes_write(
    store: SessionStore, astore: AsyncSessionStore, run_async: Run
) -> None:
    store.create_session("s", agent_type="a")

    async def follow(total: int) -> list[Any]:
        async with astore.subscribe("s", after=1) as tail:
            return [await anext(tail) for _ in range(total)]

    async def main() -> None:
        readers = [asyncio.create_task(follow(200)) for _ in range(20)]
        await asyncio.sleep(0)
        workers = await asyncio.to_thread(start, emit, 2, 100)
        for seen in await asyncio.gather(*readers):
            check(seen, 2, 100)
        await asyncio.to_thread(finish, workers)

    run_async(main)


def listening() -> bool:
    return hub._channel("default").listening


def listener_pids() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'helix_sessions'"
            " AND datname = current_database() AND pid <> pg_backend_pid()"
        )
        return [pid for (pid,) in cursor.fetchall()]


@pytest.fixture
def on_postgresql(engine: str) -> None:
    if engine != "postgresql":
        pytest.skip("SQLite has no NOTIFY.")


@pytest.mark.usefixtures("on_postgresql", "slow_polls")
class TestChannel:
    """Nothing polls here: what arrives was notified."""

    def test_what_another_process_commits_arrives_by_notification(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="a")
        with store.subscribe("s") as tail:
            wait_until(listening)
            workers = start(emit, 2, 50)
            check([next(tail) for _ in range(100)], 2, 50)
            finish(workers)

    def test_killing_the_listening_connection_loses_nothing(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="a")
        with store.subscribe("s") as tail:
            wait_until(listening)
            workers = start(emit, 2, 150)
            seen: list[Any] = []
            for kill_at in (20, 120, 220, 300):
                while len(seen) < kill_at:
                    seen.append(next(tail))
                with connection.cursor() as cursor:
                    for pid in listener_pids():
                        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
            check(seen, 2, 150)
            finish(workers)
            wait_until(listening)
            finish(start(emit, 1, 1))
            assert next(tail).seq == 302

    def test_fragments_cross_processes_when_they_are_small(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="a")
        with store.subscribe("s", fragments=True) as tail:
            wait_until(listening)
            workers = start(publish, 1, 20)
            seen = [next(tail) for _ in range(21)]
            assert [item.data for item in seen] == [*range(20), {"n": 20}]
            finish(workers)

    def test_readers_of_a_process_share_one_listening_connection(self, store: SessionStore) -> None:
        ids = [f"s{n}" for n in range(30)]
        for key in ids:
            store.create_session(key, agent_type="a")
        tails = [store.subscribe(key) for key in ids]
        wait_until(listening)
        assert len(listener_pids()) == 1
        for tail in tails:
            tail.close()
        wait_until(lambda: not listener_pids())
        assert not listening()

    def test_the_writing_transaction_notifies_nobody(
        self, store: SessionStore, django_assert_num_queries: Any
    ) -> None:
        from django.test.utils import CaptureQueriesContext

        store.create_session("s", agent_type="a")
        with CaptureQueriesContext(connection) as captured:
            store.emit_event("s", "ticked", 1)
            store.append_messages("s", [{"role": "user", "content": "hi"}])
        assert not any("notify" in query["sql"].lower() for query in captured)


@pytest.mark.usefixtures("on_postgresql")
def test_behind_a_transaction_pooling_proxy_it_polls(store: SessionStore, settings: Any) -> None:
    settings.HELIX_SESSIONS = {"STREAM_POLL_SECONDS": 0.05}
    store.create_session("s", agent_type="a")
    settings.DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = True
    try:
        with store.subscribe("s") as tail:
            workers = start(emit, 1, 5)
            check([next(tail) for _ in range(5)], 1, 5)
            finish(workers)
            assert not listening()
    finally:
        settings.DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = False
