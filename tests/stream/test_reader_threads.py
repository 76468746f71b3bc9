"""Threads that read for event loops: a few for a whole process, none when there is nothing to read."""

import os
import queue
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connection, connections

from helix_sessions.store import SessionStore
from helix_sessions.stream import readers as reader_threads
from helix_sessions.stream import slots
from helix_sessions.stream.hub import hub
from helix_sessions.stream.readers import MOST_THREADS, Readers, readers
from helix_sessions.stream.threads import release_request_thread
from tests.parallel import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Readers:
    """Threads that leave soon."""
    monkeypatch.setattr(reader_threads, "_IDLE", 0.05)
    return Readers()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a job waits for."""
    gate = threading.Event()
    yield gate
    gate.set()


def test_some_read_at_the_same_time_and_never_more_than_a_few(pool: Readers) -> None:
    together = threading.Barrier(MOST_THREADS)
    lock = threading.Lock()
    working, most = 0, 0

    def job() -> None:
        nonlocal working, most
        with lock:
            working += 1
            most = max(most, working)
        together.wait(10)
        with lock:
            working -= 1

    for future in [pool.submit(job) for _ in range(10 * MOST_THREADS)]:
        future.result(10)

    assert most == MOST_THREADS


def test_a_thread_without_work_leaves_with_its_connection_and_another_comes(pool: Readers) -> None:
    def job() -> tuple[threading.Thread, Any]:
        connection.ensure_connection()
        return threading.current_thread(), connections["default"]

    for _ in range(2 * MOST_THREADS):
        thread, opened = pool.submit(job).result(10)
        thread.join(10)
        assert not thread.is_alive()
        assert opened.connection is None


def test_a_job_that_comes_while_the_last_thread_leaves_is_done(pool: Readers) -> None:
    class Late(queue.SimpleQueue[Any]):
        """The first look finds nothing, as one that ended a moment before the job came."""

        looked = False

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if not self.looked:
                self.looked = True
                raise queue.Empty
            return super().get(block, timeout)

    pool._jobs = Late()

    assert pool.submit(lambda: 1).result(10) == 1


def test_a_cancelled_job_is_not_done_and_what_a_job_raises_is_told(
    pool: Readers, gate: threading.Event
) -> None:
    done: list[int] = []
    held = [pool.submit(lambda: gate.wait(10)) for _ in range(MOST_THREADS)]
    cancelled: Future[None] = pool.submit(lambda: done.append(1))
    assert cancelled.cancel()
    gate.set()
    for future in held:
        future.result(10)
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(10)
    with pytest.raises(SystemExit):
        pool.submit(lambda: exec("raise SystemExit")).result(10)

    assert pool.submit(lambda: 2).result(10) == 2
    assert done == []


def test_a_forked_process_begins_without_its_parents_readers(
    store: SessionStore, gate: threading.Event
) -> None:
    """It has none of the threads, so it has none of the watchers, reads and streams."""
    store.create_session("s", agent_type="a")
    held = [readers.submit(lambda: gate.wait(10)) for _ in range(MOST_THREADS)]
    with store.subscribe("s"):
        slot = slots.take("reader", 1)
        connections.close_all()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            code = 1
            try:
                begun = hub.watched("default") == 0 and slots.take("reader", 1) is not None
                code = 0 if begun and readers.submit(lambda: 1).result(10) == 1 else 1
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert slot is not None
        slot.release()
    gate.set()
    for future in held:
        future.result(10)


def test_a_stream_gives_the_thread_of_its_request_back(run_async: Any) -> None:
    """And its connections; a new one is made if it is needed again."""

    def connect() -> tuple[threading.Thread, Any]:
        connection.ensure_connection()
        return threading.current_thread(), connections["default"]

    async def main() -> None:
        async with ThreadSensitiveContext():
            thread, opened = await sync_to_async(connect)()
            release_request_thread()
            await sync_to_async(thread.join, thread_sensitive=False)(10)
            assert not thread.is_alive()
            assert opened.connection is None
            another, _ = await sync_to_async(connect)()
            assert another is not thread
            await sync_to_async(connections.close_all)()

    run_async(main)


def test_users_have_so_many_streams_each() -> None:
    one = [slots.take("one", 2), slots.take("one", 2)]
    other = slots.take("other", 1)
    assert None not in (*one, other)
    assert slots.take("one", 2) is slots.take("other", 1) is None

    for slot in (*one, other):
        assert slot is not None
        slot.release()
        slot.release()
    again = slots.take("one", 1)
    assert again is not None
    assert list(slots._open) == ["one"], "who has no streams is forgotten"
    again.release()


def test_no_thread_stays_when_nobody_reads(store: SessionStore, run_async: Any) -> None:
    def working() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "helix_sessions-reader"]

    assert readers.submit(lambda: 1).result(10) == 1
    wait_until(lambda: not working())
