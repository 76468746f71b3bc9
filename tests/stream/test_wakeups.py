"""Who is woken by what, and when: no commit is slept over, and nobody is woken for nothing."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.store.transcript.subscriptions import SessionLog
from helix_sessions.stream.followers import Entry
from helix_sessions.stream.fragment_cursor import MOST_FRAGMENTS
from helix_sessions.stream.hub import hub
from helix_sessions.types import Fragment
from tests.stream.test_subscribe import meanwhile

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("slow_polls")]

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(autouse=True)
def session(store: SessionStore) -> None:
    store.create_session("s", agent_type="a")


class Reads:
    """Reads of the log, counted, with something to do between the rows and the reader."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.then: Callable[[], Any] = lambda: None
        real = SessionLog.read

        def read(log: SessionLog, after: int) -> Any:
            batch = real(log, after)
            self.count += 1
            then, self.then = self.then, lambda: None
            then()
            return batch

        patch.setattr(SessionLog, "read", read)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def test_what_is_committed_during_a_read_is_read_next(store: SessionStore, reads: Reads) -> None:
    with store.subscribe("s") as tail:
        reads.then = lambda: store.emit_event("s", "ticked", 1)

        assert next(tail).data == 1


def test_also_on_an_event_loop(
    store: SessionStore, astore: AsyncSessionStore, reads: Reads, run_async: Run
) -> None:
    async def main() -> None:
        async with astore.subscribe("s") as tail:
            reads.then = lambda: store.emit_event("s", "ticked", 1)
            assert (await asyncio.wait_for(anext(tail), 10)).data == 1

    run_async(main)


def test_a_reader_that_joins_a_read_from_before_a_commit_sees_the_commit(
    store: SessionStore, astore: AsyncSessionStore, reads: Reads, run_async: Run
) -> None:
    """Readers of a session share reads, but not with who asked before the commit."""

    async def main() -> None:
        under_way, finish = threading.Event(), threading.Event()

        def hold() -> None:
            under_way.set()
            finish.wait(10)

        async with astore.subscribe("s") as one, astore.subscribe("s") as other:
            reads.then = hold
            first = asyncio.create_task(anext(one))
            await asyncio.to_thread(under_way.wait, 10)
            await astore.emit_event("s", "ticked", 1)
            assert (await asyncio.wait_for(anext(other), 10)).data == 1
            finish.set()
            assert (await asyncio.wait_for(first, 10)).data == 1

    run_async(main)


def test_a_reader_that_is_cancelled_takes_no_read_from_the_others(
    astore: AsyncSessionStore, reads: Reads, run_async: Run
) -> None:
    async def main() -> None:
        under_way, finish = threading.Event(), threading.Event()

        def hold() -> None:
            under_way.set()
            finish.wait(10)

        async with astore.subscribe("s", after=0) as one, astore.subscribe("s", after=0) as other:
            reads.then = hold
            steps = [asyncio.create_task(anext(tail)) for tail in (one, other)]
            await asyncio.to_thread(under_way.wait, 10)
            steps[0].cancel()
            await asyncio.wait([steps[0]])
            finish.set()
            assert (await asyncio.wait_for(steps[1], 10)).seq == 1
            assert (await asyncio.wait_for(anext(one), 10)).seq == 1

    run_async(main)


def test_a_reader_that_is_closed_during_its_read_ends(
    astore: AsyncSessionStore, reads: Reads, run_async: Run
) -> None:
    async def main() -> None:
        under_way, finish = threading.Event(), threading.Event()

        def hold() -> None:
            under_way.set()
            finish.wait(10)

        async with astore.subscribe("s") as tail:
            reads.then = hold
            step = asyncio.create_task(anext(tail, None))
            await asyncio.to_thread(under_way.wait, 10)
            await tail.aclose()
            finish.set()
            assert await asyncio.wait_for(step, 10) is None

    run_async(main)


def test_without_a_place_everything_committed_since_the_call_is_seen(
    store: SessionStore, astore: AsyncSessionStore, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the head is read, and however many commits there were."""
    may_open = threading.Event()
    real = SessionLog.open

    def late(log: SessionLog) -> Any:
        may_open.wait(10)
        return real(log)

    def in_one_transaction() -> None:
        with transaction.atomic():
            store.emit_event("s", "ticked", 1)
            store.emit_event("s", "ticked", 2)

    def in_two() -> None:
        store.emit_event("s", "ticked", 1)
        store.emit_event("s", "ticked", 2)

    monkeypatch.setattr(SessionLog, "open", late)

    async def main() -> None:
        for commit in (in_one_transaction, in_two):
            may_open.clear()
            tail = astore.subscribe("s")
            await asyncio.to_thread(commit)
            may_open.set()
            seen = [(await asyncio.wait_for(anext(tail), 10)).data for _ in range(2)]
            assert seen == [1, 2], commit.__name__
            await tail.aclose()

    run_async(main)


def test_a_step_that_is_cancelled_while_it_opens_can_be_repeated(
    astore: AsyncSessionStore, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, may_open = threading.Event(), threading.Event()
    real = SessionLog.open

    def late(log: SessionLog) -> Any:
        opening.set()
        may_open.wait(10)
        return real(log)

    monkeypatch.setattr(SessionLog, "open", late)

    async def main() -> None:
        tail = astore.subscribe("s", after=0)
        step = asyncio.create_task(anext(tail))
        await asyncio.to_thread(opening.wait, 10)
        step.cancel()
        await asyncio.wait([step])
        may_open.set()
        assert (await asyncio.wait_for(anext(tail), 10)).seq == 1
        await tail.aclose()

    run_async(main)


def test_a_transaction_wakes_the_readers_of_all_its_sessions(store: SessionStore) -> None:
    store.create_session("t", agent_type="a")
    with store.subscribe("s") as one, store.subscribe("t") as other:
        assert (one.some(0), other.some(0)) == ([], [])
        with transaction.atomic():
            store.emit_event("s", "ticked", 1)
            store.emit_event("t", "ticked", 2)

        assert (next(one).data, next(other).data) == (1, 2)


def test_a_watcher_that_fails_harms_no_writer(store: SessionStore) -> None:
    """What was committed is not reported as failed, in a transaction of the caller or without one."""

    class Broken:
        def poke(self, first_seq: int | None) -> None:
            if first_seq is not None:
                raise RuntimeError("broken")

    broken: Any = Broken()
    hub.watch(("default", "s"), broken)
    try:
        assert store.emit_event("s", "ticked", 1).seq == 2
        with transaction.atomic():
            store.emit_event("s", "ticked", 2)
    finally:
        hub.unwatch(("default", "s"), broken)
    assert [event.data for event in store.get_events("s", 2)] == [1, 2]


def test_a_fragment_alone_ends_a_wait(store: SessionStore) -> None:
    with store.subscribe("s", fragments=True) as tail:
        seen: list[Any] = []
        with meanwhile(lambda: seen.append(next(tail).data)) as reader:
            reader.join(0.1)
            store.publish_fragment("s", "a")

        assert seen == ["a"]


def test_a_fragment_alone_ends_a_wait_on_an_event_loop(astore: AsyncSessionStore, run_async: Run) -> None:
    async def main() -> None:
        async with astore.subscribe("s", fragments=True) as tail:
            step = asyncio.create_task(anext(tail))
            await asyncio.sleep(0.1)
            await astore.publish_fragment("s", "a")
            assert (await asyncio.wait_for(step, 10)).data == "a"

    run_async(main)


def test_who_wants_no_fragments_is_not_woken_by_them(store: SessionStore, reads: Reads) -> None:
    with store.subscribe("s") as tail:
        tail.some(0)
        store.publish_fragment("s", "a")

        assert tail._signal.take_fragments() == []


def test_a_slow_reader_on_an_event_loop_holds_few_fragments(
    store: SessionStore, astore: AsyncSessionStore, run_async: Run
) -> None:
    async def main() -> None:
        async with astore.subscribe("s", fragments=True) as tail:
            assert await tail.some(0) == []

            def publish() -> None:
                for n in range(2 * MOST_FRAGMENTS):
                    store.publish_fragment("s", n)

            await asyncio.to_thread(publish)
            await astore.emit_event("s", "ticked", "event")
            *fragments, event = await tail.some(10) or []
            assert [item.data for item in fragments if isinstance(item, Fragment)] == [*range(MOST_FRAGMENTS)]
            assert isinstance(event, Entry)

    run_async(main)


def test_a_fragment_that_is_ahead_of_what_was_read_brings_its_events(
    store: SessionStore, astore: AsyncSessionStore, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the poke of another process was lost."""
    poke = hub.poke

    def lost(alias: str, session_id: str, first_seq: int | None = None) -> None: ...

    async def main() -> None:
        async with astore.subscribe("s", fragments=True) as tail:
            assert await tail.some(0) == []
            monkeypatch.setattr(hub, "poke", lost)
            await astore.emit_event("s", "ticked", 1)
            monkeypatch.setattr(hub, "poke", poke)
            await astore.publish_fragment("s", "a")
            assert [(await asyncio.wait_for(anext(tail), 10)).data for _ in range(2)] == [1, "a"]

    run_async(main)
    with store.subscribe("s", fragments=True) as tail:
        assert tail.some(0) == []
        monkeypatch.setattr(hub, "poke", lost)
        store.emit_event("s", "ticked", 2)
        monkeypatch.setattr(hub, "poke", poke)
        store.publish_fragment("s", "b")
        assert [next(tail).data, next(tail).data] == [2, "b"]


def test_a_place_that_is_still_to_come_is_waited_for(
    store: SessionStore, astore: AsyncSessionStore, run_async: Run
) -> None:
    with store.subscribe("s", after=3) as tail:
        assert tail.some(0) == []
        for n in range(2, 6):
            store.emit_event("s", "ticked", n)
        assert [next(tail).seq, next(tail).seq] == [4, 5]

    async def main() -> None:
        async with astore.subscribe("s", after=6) as tail:
            assert await tail.some(0) == []
            for n in range(6, 9):
                await astore.emit_event("s", "ticked", n)
            assert [(await anext(tail)).seq for _ in range(2)] == [7, 8]

    run_async(main)


def test_who_waits_reads_once_for_each_poke_or_poll(
    store: SessionStore, astore: AsyncSessionStore, reads: Reads, run_async: Run, settings: Any
) -> None:
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "STREAM_NOTIFY": False}
    with store.subscribe("s") as tail:
        assert tail.some(0.3) == []
        assert reads.count == 1

    async def main() -> None:
        async with astore.subscribe("s") as tail:
            assert await tail.some(0.3) == []
            assert reads.count == 2

    run_async(main)


def test_polls_go_on_for_as_long_as_somebody_reads(
    store: SessionStore,
    astore: AsyncSessionStore,
    reads: Reads,
    run_async: Run,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And there is one timer for a session, however often it is poked."""
    settings.HELIX_SESSIONS = {"STREAM_POLL_SECONDS": 0.1}
    monkeypatch.setattr("helix_sessions.stream.hub.SAFETY_POLL_SECONDS", 0.1)

    async def main() -> None:
        async with astore.subscribe("s") as tail:
            for _ in range(20):
                await astore.emit_event("s", "ticked")
                await anext(tail)
            before = reads.count
            assert await tail.some(1.05) == []
            assert 3 <= reads.count - before <= 12
        timers = [timer for timer in _timers() if not timer.cancelled() and "_advance" in repr(timer)]
        assert timers == [], "a feed without readers polls on"

    run_async(main)


def _timers() -> list[asyncio.TimerHandle]:
    return list(asyncio.get_running_loop()._scheduled)  # type: ignore[attr-defined]


def test_where_nothing_notifies_readers_poll_often(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.HELIX_SESSIONS = {"STREAM_NOTIFY": False, "STREAM_POLL_SECONDS": 0.02}
    monkeypatch.setattr("helix_sessions.stream.hub.SAFETY_POLL_SECONDS", 600.0)
    with store.subscribe("s") as tail:
        assert tail.some(0) == []
        monkeypatch.setattr(hub, "poke", lambda *_: None)
        store.emit_event("s", "ticked", 1)

        assert len(tail.some(10) or []) == 1


def test_a_session_that_was_left_can_be_read_again_on_the_same_loop(
    astore: AsyncSessionStore, run_async: Run
) -> None:
    async def main() -> None:
        for seq in (2, 3):
            async with astore.subscribe("s") as tail:
                assert await tail.some(0) == []
                step = asyncio.create_task(anext(tail))
                await asyncio.sleep(0)
                await astore.emit_event("s", "ticked")
                assert (await asyncio.wait_for(step, 10)).seq == seq

    run_async(main)


def test_a_refused_subscription_holds_no_place(store: SessionStore) -> None:
    with pytest.raises(SessionNotFound) as refused:
        store.subscribe("nobody")

    assert hub.watched("default") == 0
    del refused


def test_a_watcher_is_counted_once(store: SessionStore) -> None:
    with store.subscribe("s") as tail:
        hub.watch(("default", "s"), tail._signal)

        assert hub.watched("default") == 1


def test_a_forgotten_reader_is_let_go_when_the_next_one_comes(store: SessionStore) -> None:
    signal = weakref.ref(store.subscribe("s")._signal)
    gc.collect()

    with store.subscribe("s"):
        gc.collect()
        assert signal() is None


def test_readers_of_a_loop_that_was_closed_are_let_go_when_the_next_one_comes(
    astore: AsyncSessionStore, run_async: Run
) -> None:
    kept: list[Any] = []

    async def leave_open() -> None:
        kept.append(await astore.subscribe("s"))

    async def look() -> None:
        async with astore.subscribe("s"):
            assert hub.watched("default") == 1

    run_async(leave_open)
    run_async(look)
    with suppress(RuntimeError):
        kept.pop().close()


def test_detaching_ends_no_http_stream(astore: AsyncSessionStore, run_async: Run) -> None:
    """It lets go of what the process holds for itself; a browser would only come back."""
    from helix_sessions.stream.feeds import AsyncTail

    async def main() -> None:
        log = SessionLog("default", "s")
        async with AsyncTail(log, lambda item: item, after=None, detachable=False) as stream:
            own = await astore.subscribe("s")
            await astore.detach("s")
            assert [event async for event in own] == []
            await astore.emit_event("s", "ticked", 1)
            assert isinstance(await asyncio.wait_for(anext(stream), 10), Entry)

    run_async(main)
