"""Async puts on a thread that wait at the same time: stored in one go, or each alone, as if one by one."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from django.db import OperationalError, connection
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver

from helix_sessions.exceptions import StaleState
from helix_sessions.integrations.langgraph import DjangoSaver
from helix_sessions.store import SessionStore

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="a file has one writer at a time"),
]

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def checkpoint(number: int) -> Any:
    made = empty_checkpoint()
    made["id"] = str(uuid6())
    made["channel_values"] = {"messages": [f"said {each} " * 20 for each in range(number + 1)], "n": number}
    made["channel_versions"] = {"messages": number + 1, "n": number + 1}
    return made


MADE = [checkpoint(number) for number in range(3)]


def at(number: int) -> Any:
    return {"configurable": {**THREAD["configurable"], "checkpoint_id": MADE[number]["id"]}}


def put(put: Callable[..., Any], number: int, after: Any = None, source: str = "loop") -> Any:
    made = MADE[number]
    metadata = {"source": source, "step": number if source == "loop" else -1}
    return put(after or (at(number - 1) if number else THREAD), made, metadata, made["channel_versions"])


class GatedStore(SessionStore):
    """Its first write waits until the gate is opened; before its second, something happens."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.reached, self.gate = threading.Event(), threading.Event()
        self.before_the_second: Callable[[], Any] = lambda: None

    def put_notes(self, session_id: str, *args: Any, **options: Any) -> Any:
        self.writes += 1
        if self.writes == 1:
            self.reached.set()
            assert self.gate.wait(20)
        elif self.writes == 2:
            self.before_the_second()
        return super().put_notes(session_id, *args, **options)


def outcomes(store: GatedStore, *calls: Callable[[DjangoSaver], Coroutine[Any, Any, Any]]) -> list[Any]:
    """What comes of calls that begin, in this order, while the first checkpoint is being stored."""
    saver = DjangoSaver(store=store)

    async def run() -> list[Any]:
        first = asyncio.create_task(put(saver.aput, 0))
        assert await asyncio.to_thread(store.reached.wait, 20)
        waiting = [asyncio.create_task(call(saver)) for call in calls]
        for _ in range(3):
            await asyncio.sleep(0)  # so that each of them waits
        store.gate.set()
        await first
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(run())


STEP = (
    lambda saver: saver.aput_writes(at(0), [("messages", ["said 1 " * 20]), ("n", 1)], "a"),
    lambda saver: saver.aput_writes(at(0), [("n", 1)], "b", "path"),
    lambda saver: put(saver.aput, 1),
    lambda saver: saver.aput_writes(at(1), [("n", 2)], "c"),
)


def of_langgraph() -> list[Any]:
    saver = InMemorySaver()
    put(saver.put, 0)
    saver.put_writes(at(0), [("messages", ["said 1 " * 20]), ("n", 1)], "a")
    saver.put_writes(at(0), [("n", 1)], "b", "path")
    put(saver.put, 1)
    saver.put_writes(at(1), [("n", 2)], "c")
    return [compared(saver, number) for number in (0, 1)]


def compared(saver: Any, number: int) -> Any:
    found = saver.get_tuple(at(number))
    return found.checkpoint, found.parent_config, sorted(found.pending_writes, key=repr)


def found(where: Any) -> Any:
    return DjangoSaver().get_tuple(where)


def stored() -> list[Any]:
    return [compared(DjangoSaver(), number) for number in (0, 1)]


def test_a_step_that_waits_is_one_write() -> None:
    store = GatedStore()
    assert outcomes(store, *STEP) == [None, None, at(1), None]
    assert store.writes == 2
    assert stored() == of_langgraph()
    assert store.examine_sessions(deep=True) == []


def test_what_parallel_tasks_wrote_is_one_write() -> None:
    store = GatedStore()
    tasks = [f"task {number}" for number in range(5)]
    assert (
        outcomes(
            store, *(lambda saver, task=task: saver.aput_writes(at(0), [("n", task)], task) for task in tasks)
        )
        == [None] * 5
    )
    assert store.writes == 2
    assert {task for task, _, _ in found(THREAD).pending_writes} == {*tasks}


def test_another_writer_in_between_only_makes_it_several_writes() -> None:
    store = GatedStore()
    store.before_the_second = lambda: SessionStore().put_notes("t", {"by": "another"})
    assert outcomes(store, *STEP) == [None, None, at(1), None]
    assert store.writes > 2
    assert SessionStore().get_notes("t", keys=["by"]), "it did write"
    assert stored() == of_langgraph()


def test_a_run_that_was_overtaken_is_refused_and_what_waited_with_it_is_stored() -> None:
    store = GatedStore()
    writes, refused = outcomes(
        store,
        lambda saver: saver.aput_writes(at(0), [("n", 1)], "a"),
        lambda saver: put(saver.aput, 2, THREAD, source="input"),
    )
    assert writes is None
    assert isinstance(refused, StaleState)
    newest = found(THREAD)
    assert newest.checkpoint["id"] == MADE[0]["id"]
    assert newest.pending_writes == [("a", "n", 1)]


def test_a_value_that_cannot_be_serialized_fails_alone() -> None:
    class Unknown:
        def __reduce__(self) -> Any:
            raise TypeError("no serializer knows it")

    store = GatedStore()
    failed, step = outcomes(
        store,
        lambda saver: saver.aput_writes(at(0), [("n", Unknown())], "a"),
        lambda saver: put(saver.aput, 1),
    )
    assert isinstance(failed, TypeError)
    assert step == at(1)
    assert found(at(0)).pending_writes == []


def test_a_write_whose_outcome_is_unknown_is_not_made_again() -> None:
    def fail() -> None:
        raise OperationalError("the connection is lost")

    store = GatedStore()
    store.before_the_second = fail
    assert [type(outcome) for outcome in outcomes(store, *STEP)] == [OperationalError] * 4
    assert store.writes == 2


def test_a_call_that_is_cancelled_before_it_began_is_not_done() -> None:
    store = GatedStore()
    saver = DjangoSaver(store=store)

    async def run() -> None:
        first = asyncio.create_task(put(saver.aput, 0))
        assert await asyncio.to_thread(store.reached.wait, 20)
        cancelled = asyncio.create_task(saver.aput_writes(at(0), [("n", 1)], "cancelled"))
        kept = asyncio.create_task(saver.aput_writes(at(0), [("n", 1)], "kept"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        store.gate.set()
        await asyncio.gather(first, kept)

    asyncio.run(run())
    assert found(THREAD).pending_writes == [("kept", "n", 1)]
