"""Reading along on an event loop."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.stream.hub import hub
from helix_sessions.types import Fragment

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("slow_polls")]

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(autouse=True)
def session(store: SessionStore) -> None:
    store.create_session("s", agent_type="a")


async def take(tail: Any, count: int) -> list[Any]:
    return [await anext(tail) for _ in range(count)]


def test_what_was_and_then_what_comes(astore: AsyncSessionStore, run_async: Run) -> None:
    async def main() -> None:
        await astore.emit_event("s", "ticked", 1)
        async with astore.subscribe("s", after=0) as tail:
            reading = asyncio.create_task(take(tail, 52))
            for n in range(2, 52):
                await astore.emit_event("s", "ticked", n)
            seen = await reading
        assert seen == await astore.get_events("s")

    run_async(main)


def test_it_starts_at_the_head_as_of_the_call_awaited_or_not(
    astore: AsyncSessionStore, run_async: Run
) -> None:
    async def main() -> None:
        for awaited in (False, True):
            tail = astore.subscribe("s")
            if awaited:
                await tail
            written = await astore.emit_event("s", "ticked", 1)
            assert await anext(tail) == written
            await tail.aclose()

    for _ in range(10):
        run_async(main)


def test_an_unknown_session_is_reported(astore: AsyncSessionStore, run_async: Run) -> None:
    async def main() -> None:
        with pytest.raises(SessionNotFound):
            await astore.subscribe("nobody")
        with pytest.raises(SessionNotFound):
            await anext(astore.subscribe("nobody"))

    run_async(main)


def test_it_ends_with_the_session_and_when_closed(astore: AsyncSessionStore, run_async: Run) -> None:
    async def main() -> None:
        closed, deleted, detached = [await astore.subscribe("s") for _ in range(3)]
        ends = [asyncio.create_task(_all(tail)) for tail in (closed, deleted, detached)]
        await asyncio.sleep(0)
        await closed.aclose()
        assert await ends[0] == []
        await astore.detach("s")
        assert await ends[2] == []
        deleted = await astore.subscribe("s")
        await astore.delete_session("s")
        assert await _all(deleted) == []

    run_async(main)


async def _all(tail: Any) -> list[Any]:
    return [event async for event in tail]


def test_readers_of_a_session_share_a_read(
    store: SessionStore, astore: AsyncSessionStore, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helix_sessions.store.transcript.subscriptions import SessionLog

    reads: list[int] = []
    read = SessionLog.read

    def counted(self: SessionLog, after: int) -> Any:
        reads.append(after)
        return read(self, after)

    monkeypatch.setattr(SessionLog, "read", counted)

    async def main() -> None:
        tails = [await astore.subscribe("s") for _ in range(50)]
        waiting = [asyncio.create_task(take(tail, 1)) for tail in tails]
        await asyncio.sleep(0.2)
        before = len(reads)
        await astore.emit_event("s", "ticked", {"n": 1})
        seen = await asyncio.gather(*waiting)
        assert len(reads) - before <= 2
        seen[0][0].data["n"] = 99
        assert seen[1][0].data == {"n": 1}
        for tail in tails:
            await tail.aclose()

    run_async(main)


def test_a_timed_out_or_cancelled_step_loses_nothing(astore: AsyncSessionStore, run_async: Run) -> None:
    async def main() -> None:
        tail = await astore.subscribe("s")
        for n in range(30):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(tail), 0.001 * (n % 4))
            await astore.emit_event("s", "ticked", n)
            step = asyncio.create_task(anext(tail))
            await asyncio.sleep(0.0005 * (n % 4))
            if step.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await step
                assert (await anext(tail)).data == n
            else:
                assert (await step).data == n
        await tail.aclose()

    run_async(main)


def test_a_forgotten_reader_leaves(astore: AsyncSessionStore, run_async: Run) -> None:
    async def main() -> None:
        tail = await astore.subscribe("s")
        assert hub.watched("default") == 1
        del tail
        gc.collect()
        await asyncio.sleep(0)
        assert hub.watched("default") == 0

    run_async(main)


def test_a_loop_that_ended_with_readers_on_it_is_forgotten(
    store: SessionStore, astore: AsyncSessionStore, run_async: Run
) -> None:
    async def main() -> None:
        main.tail = await astore.subscribe("s")  # type: ignore[attr-defined]

    run_async(main)
    store.emit_event("s", "ticked", 1)

    assert hub.watched("default") == 0
    del main.tail  # type: ignore[attr-defined]


def test_fragments_come_in_their_place(astore: AsyncSessionStore, run_async: Run) -> None:
    async def main() -> None:
        async with astore.subscribe("s", fragments=True) as tail:
            await astore.publish_fragment("s", "a")
            await astore.emit_event("s", "ticked", "b")
            await astore.publish_fragment("s", "c")
            seen = await take(tail, 3)
            assert [item.data for item in seen] == ["a", "b", "c"]
            assert [isinstance(item, Fragment) for item in seen] == [True, False, True]

    run_async(main)


def test_fragments_that_come_before_the_log_is_open_are_kept(
    astore: AsyncSessionStore, run_async: Run
) -> None:
    async def main() -> None:
        tail = astore.subscribe("s", fragments=True)
        hub.publish("default", Fragment(session_id="s", data="early", after_seq=1))
        await asyncio.sleep(0)  # the feed shares it; nobody has asked for the log yet
        assert (await take(tail, 1))[0].data == "early"
        await tail.aclose()

    run_async(main)
