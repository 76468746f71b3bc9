"""What a worker spends beside its statements: connections, threads, and looks of its companions."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.backends.signals import connection_created

from helix_sessions.runtime import SessionRunner, TurnContext, TurnOutcome, companion
from helix_sessions.runtime.companion import Companion
from helix_sessions.runtime.loop import lease_keeper
from helix_sessions.runtime.scripted import ScriptedAgent
from helix_sessions.store import SessionStore
from helix_sessions.store.driving import knowledge
from tests.parallel import run_threads, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def counted_connections() -> Iterator[list[str]]:
    made: list[str] = []

    def note(**options: Any) -> None:
        made.append(threading.current_thread().name)

    connection_created.connect(note)
    try:
        yield made
    finally:
        connection_created.disconnect(note)


class Watching:
    """Notes the thread that keeps the leases while it answers."""

    def __init__(self) -> None:
        self.keepers: list[threading.Thread | None] = []

    def run_turn(self, turn: TurnContext) -> TurnOutcome:
        self.keepers.append(lease_keeper.keeper._thread)
        return TurnOutcome("ok")


def test_connections_and_threads_serve_one_session_after_the_other(
    store: SessionStore, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty sessions open hardly more than three do. (What looks by the clock opens its own: the longer the
    sessions take here, the more often.)"""
    monkeypatch.setattr(companion, "REST_SECONDS", 600.0)
    monkeypatch.setattr(lease_keeper, "LOOK_SECONDS", 600.0)
    agent = Watching()
    settings.HELIX_SESSIONS = {"AGENTS": {"watching": agent}}
    numbers = []
    for count in (3, 30):
        for number in range(count):
            store.create_session(f"{count}-{number}", agent_type="watching")
            store.admit_input(f"{count}-{number}", "hello")
        agent.keepers.clear()
        with counted_connections() as made:
            call_command("run_sessions", "--once", "--concurrency", "1", "--poll", "0.05", verbosity=0)
        assert len(agent.keepers) == count
        assert len(set(agent.keepers)) == 1, agent.keepers
        numbers.append(len(made))
    assert numbers[1] < numbers[0] + 27 / 3, made


class Told(Companion):
    """Finds what it is given."""

    name = failure = "told"

    def __init__(self, *found: int) -> None:
        super().__init__(None)
        self._found = list(found)
        self.looks = 0

    def step(self, *, to_the_end: bool) -> int:
        self.looks += 1
        return self._found.pop(0) if self._found else 0


def tell(beside: Told, looks: int) -> None:
    beside.look()
    wait_until(lambda: beside.looks >= looks)


class TestCompanions:
    @pytest.fixture(autouse=True)
    def _long_rest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(companion, "REST_SECONDS", 60.0)

    def test_who_is_told_in_vain_rests(self) -> None:
        with Told() as beside:
            wait_until(lambda: beside.looks == 1)
            tell(beside, 2)
            for _ in range(100):
                beside.look()
        assert beside.looks == 2

    def test_who_finds_something_looks_each_time(self) -> None:
        with Told(0, 1, 0, 1, 0, 1, 0) as beside:
            wait_until(lambda: beside.looks == 1)
            tell(beside, 3)
            tell(beside, 5)
            tell(beside, 7)


def waits_for_disk() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('synchronous_commit')")
        return cursor.fetchone()[0]


def test_only_the_commit_of_a_claim_does_not_wait_for_the_disk(
    store: SessionStore, session: str, engine: str
) -> None:
    if engine != "postgresql":
        pytest.skip("SQLite has no such setting")
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")  # as it is by default
    runner = SessionRunner(ScriptedAgent())
    store.admit_input(session, "hello")
    with transaction.atomic():
        assert runner.claim() is not None
        assert waits_for_disk() == "on"
        transaction.set_rollback(True)
    driver = runner.claim()
    assert driver is not None
    assert waits_for_disk() == "on"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_others_say_around_the_first_read_is_seen(
    store: SessionStore, session: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The context is read with the rest, before the run has begun."""
    store.append_messages(session, [{"role": "user", "content": "long ago"}])
    store.admit_input(session, "hello")
    seen: list[list[Any]] = []

    class Agent:
        def run_turn(self, turn: TurnContext) -> TurnOutcome:
            seen.append([message["content"] for message in turn.context.messages])
            return TurnOutcome("ok")

    def say() -> None:
        message = {"role": "user", "content": "meanwhile"}
        run_threads(1, lambda _: SessionStore().append_messages(session, [message]))

    read = knowledge.read_at_claim

    def disturbed(*args: Any) -> Any:
        if moment == "before":
            say()
        found = read(*args)
        if moment == "after":
            say()
        return found

    monkeypatch.setattr(knowledge, "read_at_claim", disturbed)
    assert SessionRunner(Agent()).wake(session).kind == "completed"
    assert seen == [["long ago", "meanwhile", "hello"]]
