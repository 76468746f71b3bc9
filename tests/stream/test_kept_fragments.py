"""What was said so far: a reader that comes in the middle of a word sees all of it, each piece once."""

import asyncio
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections

from helix_sessions.exceptions import TransientError
from helix_sessions.models import FragmentBatch
from helix_sessions.runtime import RetryPolicy, SessionRunner, TurnContext
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.store.transcript import fragments as kept
from helix_sessions.stream import channel as channels
from helix_sessions.types import Fragment
from tests.parallel import Worker

pytestmark = pytest.mark.django_db(transaction=True)

Run = Callable[[Callable[[], Awaitable[Any]]], Any]

PIECES = [f"w{number} " for number in range(120)]
WHOLE = "".join(PIECES)


@pytest.fixture
def session(store: SessionStore) -> str:
    store.create_session("s", agent_type="writer")
    store.admit_input("s", "hello")
    return "s"


class Speaker:
    """An agent that says what it is told to, piece by piece, in a thread of its own."""

    def __init__(self, *lines: Any, **options: Any) -> None:
        self._next = threading.Semaphore(0)
        self._heard = threading.Semaphore(0)
        self.pieces: list[Any] = []
        self.agent = ScriptedAgent([*lines, self._speak])
        self._options = options
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def say(self, *pieces: Any) -> None:
        for piece in pieces:
            self.pieces.append(piece)
            self._next.release()
            assert self._heard.acquire(timeout=20)

    def end(self) -> None:
        self.say(None)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _speak(self, turn: TurnContext) -> str:
        said = []
        for number in range(10_000):
            assert self._next.acquire(timeout=20)
            piece = self.pieces[number]
            if piece is None:
                break
            turn.publish_fragment({"text": piece})
            said.append(piece)
            self._heard.release()
        self._heard.release()
        return "".join(said)

    def _run(self) -> None:
        try:
            SessionRunner(self.agent, **self._options).run("s")
        finally:
            connections.close_all()


@contextmanager
def speaking(*lines: Any, **options: Any) -> Iterator[Speaker]:
    speaker = Speaker(*lines, **options)
    try:
        yield speaker
    finally:
        if speaker._thread.is_alive():
            speaker.end()


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def text_of(items: list[Any]) -> str:
    return "".join(item.data["text"] for item in items if isinstance(item, Fragment))


def read(tail: Any, until: str) -> list[Any]:
    """What comes until this text is complete."""
    items: list[Any] = []
    while text_of(items) != until:
        items.append(next(tail))
        assert until.startswith(text_of(items)), text_of(items)
    return items


def to_the_end(tail: Any) -> list[Any]:
    items: list[Any] = []
    while not (items and getattr(items[-1], "type", "") == "run_finished"):
        items.append(next(tail))
    return items


def read_along(_: int, until: str) -> list[tuple[str | None, int | None, str]]:
    """In a process of its own: what a reader is told, and how it goes on."""
    with SessionStore().subscribe("s", fragments=True) as tail:
        items = read(tail, until)
    return [(item.message_id, item.index, item.data["text"]) for item in items]


def speak_and_die(_: int) -> None:
    """In a process of its own, which ends in the middle of a word."""

    def speak(turn: TurnContext) -> str:
        turn.publish_fragment({"text": "Hel"})
        wait_until(lambda: FragmentBatch.objects.exists())
        os.kill(os.getpid(), signal.SIGKILL)
        return "Hello"

    SessionRunner(ScriptedAgent([speak]), lease_ttl=0.5).run("s")


def test_a_reader_begins_with_what_was_said_and_goes_on_live(store: SessionStore, session: str) -> None:
    with speaking() as speaker:
        speaker.say("Hel", "lo ", "wor")
        with store.subscribe(session, fragments=True) as tail:
            items = read(tail, "Hello wor")
            speaker.say("ld", ".")
            items += read(tail, "ld.")
            speaker.end()
            rest = to_the_end(tail)
    told = [item for item in items if isinstance(item, Fragment)]
    assert len({item.message_id for item in told}) == 1
    assert told[0].message_id is not None
    indexes = [item.index or 0 for item in told]
    assert indexes == sorted(set(indexes))
    assert indexes[-1] == 4
    assert {item.turn_id for item in told} == {f"{run_id(store)}:1"}
    assert text_of(rest) == ""
    assert [item.data["content"] for item in rest if item.type == "assistant_message"] == ["Hello world."]
    assert not FragmentBatch.objects.exists()


def run_id(store: SessionStore) -> str:
    return store.list_runs("s").items[0].run_id


def test_readers_that_come_at_any_moment_see_the_whole_once_and_in_order(
    store: SessionStore, session: str, run_async: Run
) -> None:
    chance = random.Random(7)

    def speak(turn: TurnContext) -> str:
        for piece in PIECES:
            turn.publish_fragment({"text": piece})
            time.sleep(chance.random() / 60)
        return WHOLE

    async def reader(delay: float) -> str:
        await asyncio.sleep(delay)
        items: list[Any] = []
        async with AsyncSessionStore().subscribe(session, fragments=True) as tail:
            async for item in tail:
                items.append(item)
                if not isinstance(item, Fragment) and item.type == "assistant_message":
                    break
        return text_of(items)

    async def main() -> list[str]:
        running = asyncio.create_task(asyncio.to_thread(run))
        while not (await asyncio.to_thread(FragmentBatch.objects.exists)):
            await asyncio.sleep(0.01)
        told = await asyncio.gather(*(reader(chance.random() * 0.6) for _ in range(12)))
        await running
        return list(told)

    def run() -> None:
        try:
            SessionRunner(ScriptedAgent([speak])).run(session)
        finally:
            connections.close_all()

    assert run_async(main) == [WHOLE] * 12


def test_a_reader_in_another_process(store: SessionStore, session: str) -> None:
    with speaking() as speaker:
        speaker.say("Hel", "lo ")
        worker: Worker[Any] = Worker(read_along, 0, "Hello world.")
        worker.wait_until_ready()
        worker.go()
        speaker.say("wor")
        time.sleep(0.3)  # let it open in the middle; whenever it does, the outcome is the same
        speaker.say("ld", ".")
        told: Any = worker.result()
        worker.kill()
    assert "".join(text for _, _, text in told) == "Hello world."
    assert [index for _, index, _ in told] == sorted({index for _, index, _ in told})


def test_another_attempt_is_another_message(store: SessionStore, session: str) -> None:
    def fail(turn: TurnContext) -> str:
        turn.publish_fragment({"text": "Hal"})
        wait_until(FragmentBatch.objects.exists)
        raise TransientError("busy")

    with (
        store.subscribe(session, fragments=True) as early,
        speaking(fail, retry=RetryPolicy(initial=0.01, jitter=0)) as speaker,
    ):
        speaker.say("Hel", "lo")
        with store.subscribe(session, fragments=True) as late:
            assert text_of(read(late, "Hello")) == "Hello"
        speaker.end()
        items = to_the_end(early)
    told = [item for item in items if isinstance(item, Fragment)]
    assert [(item.data["text"], item.index) for item in told] == [("Hal", 0), ("Hel", 0), ("lo", 1)]
    assert len({item.message_id for item in told}) == 2
    kinds = [getattr(item, "type", "said") for item in items]
    assert kinds.index("model_call_failed") > kinds.index("said")


def test_what_a_dead_process_said_goes(store: SessionStore, session: str) -> None:
    worker: Worker[Any] = Worker(speak_and_die, 0)
    worker.wait_until_ready()
    worker.go()
    assert worker.ended() == -signal.SIGKILL
    worker.kill()
    with store.subscribe(session, fragments=True) as tail:
        assert text_of(read(tail, "Hel")) == "Hel", "its run is under way"
    assert store.cleanup_debris(stuck_for=timedelta(0), dry_run=True).fragments_removed == 0
    store.wake(session)
    assert kept.read("default", session) == [], "its run is over"
    assert store.cleanup_debris(stuck_for=timedelta(0), dry_run=True).fragments_removed == 1
    assert store.cleanup_debris(stuck_for=timedelta(0)).fragments_removed == 1
    assert not FragmentBatch.objects.exists()


def test_the_next_message_removes_what_was_left(store: SessionStore, session: str) -> None:
    worker: Worker[Any] = Worker(speak_and_die, 0)
    worker.wait_until_ready()
    worker.go()
    worker.ended()
    worker.kill()
    time.sleep(0.6)  # until the lease of the dead is over
    with speaking() as speaker:
        speaker.say("Good")
        with store.subscribe(session, fragments=True) as tail:
            read(tail, "Good")
        wait_until(lambda: FragmentBatch.objects.count() == 2)
        speaker.end()
    assert not FragmentBatch.objects.exists()


def test_pieces_that_get_lost_on_the_way_are_read(
    store: SessionStore, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, what comes while a reader is busy; between processes, what is too much for a notification."""
    monkeypatch.setattr(channels, "_MOST_FRAGMENTS", 0)
    many = [f"{number} " for number in range(1_000)]
    with speaking() as speaker, store.subscribe(session, fragments=True) as tail:
        speaker.say(*many)
        items: list[Any] = []
        while text_of(items) != "".join(many):
            items.append(next(tail))
        indexes = [item.index or 0 for item in items if isinstance(item, Fragment)]
        assert indexes == sorted(set(indexes))


def test_writes_are_few_and_none_waits_for_them(
    store: SessionStore, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[float] = []
    write = kept.write

    def counting(using: str, batches: Any) -> None:
        written.append(time.monotonic())
        write(using, batches)

    monkeypatch.setattr(kept, "write", counting)
    monkeypatch.setattr("helix_sessions.stream.fragment_writer._writers", {})

    def speak(turn: TurnContext) -> str:
        for piece in PIECES:
            turn.publish_fragment({"text": piece})
            time.sleep(0.004)
        return WHOLE

    SessionRunner(ScriptedAgent([speak])).run(session)
    assert written
    gaps = [after - before for before, after in itertools.pairwise(written)]
    assert all(gap >= 0.1 for gap in gaps), gaps


def test_only_the_message_is_kept(store: SessionStore, session: str) -> None:
    """What a tool shows belongs to no message. What is not text is kept as it is."""
    seen: list[Any] = []
    arguments = {"tool_call_id": "call-1", "tool_name": "look"}

    def think(turn: TurnContext) -> Any:
        for data in ({"thinking": "Hm"}, {"thinking": "m."}, {"text": "I "}, {"text": "look."}):
            turn.publish_fragment(data)
        for piece in ('{"a":', "1}"):
            turn.publish_fragment({**arguments, "arguments": piece})
        turn.publish_fragment(["anything"])
        wait_until(lambda: len(kept.read("default", session)) == 7)
        with store.subscribe(session, fragments=True) as tail:
            seen.extend(next(tail) for _ in range(4))
        return calls("look", a=1)

    def look(given: Any, turn: TurnContext) -> str:
        assert not FragmentBatch.objects.exists()
        turn.publish_fragment({"text": "half done"})
        return "seen"

    agent = ScriptedAgent([think, "done"], tools={"look": look})
    with store.subscribe(session, fragments=True) as tail:
        assert SessionRunner(agent).run(session).kind == "completed"
        told = [item for item in to_the_end(tail) if isinstance(item, Fragment)]
    assert [(item.data, item.index) for item in seen] == [
        ({"thinking": "Hmm."}, 1),
        ({"text": "I look."}, 3),
        ({**arguments, "arguments": '{"a":1}'}, 5),
        (["anything"], 6),
    ]
    assert [item.index for item in told] == [0, 1, 2, 3, 4, 5, 6, None]
    assert (told[-1].data, told[-1].message_id) == ({"text": "half done"}, None)


def test_async_agents_speak_in_order(store: SessionStore, session: str, run_async: Run) -> None:
    class Agent:
        tools: dict[str, Any] = {}
        client_tools = approval_tools = ()

        async def run_turn(self, turn: TurnContext) -> str:
            for number, piece in enumerate(PIECES):
                said = turn.publish_fragment({"text": piece})
                if number % 2:
                    await said
            return WHOLE

    with store.subscribe(session, fragments=True) as tail:
        assert SessionRunner(Agent()).run(session).kind == "completed"
        assert text_of(to_the_end(tail)) == WHOLE


def test_a_stopped_message_keeps_what_was_said(store: SessionStore, session: str) -> None:
    def speak(turn: TurnContext) -> str:
        turn.publish_fragment({"text": "Hel"})
        wait_until(FragmentBatch.objects.exists)
        store.set_interrupt_flag(session, "enough")
        wait_until(turn.interrupted)
        raise RuntimeError("stopped")

    assert SessionRunner(ScriptedAgent([speak])).run(session).kind == "interrupted"
    last = store.get_messages(session).messages[-1]
    assert (last["content"], last["interrupted"]) == ("Hel", True)
    assert not FragmentBatch.objects.exists()


def test_the_table_is_not_in_the_write_ahead_log(engine: str) -> None:
    if engine != "postgresql":
        pytest.skip("SQLite has one log for all tables.")
    with connection.cursor() as cursor:
        cursor.execute("SELECT relpersistence FROM pg_class WHERE relname = 'helix_sessions_fragmentbatch'")
        assert cursor.fetchone() == ("u",)
