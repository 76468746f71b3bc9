"""Several workers on one session: one saves, the others are told, and nothing said is lost."""

import time

import pytest

from helix_sessions.exceptions import SessionConflict, SessionExists
from helix_sessions.runtime import (
    AgentSession,
    ChangeModel,
    ForkSession,
    SendMessage,
    SessionRuntime,
    WriteMetadata,
)
from helix_sessions.store import SessionStore
from tests.concurrency.outcomes import split
from tests.invariants import assert_invariants
from tests.parallel import Worker
from tests.runtime.conftest import DEFINITION

WORKERS = 16
HELLO = {"role": "user", "content": "hello"}
pytestmark = pytest.mark.django_db(transaction=True)


class Together:
    """Acts when all the others have loaded."""

    def __init__(self, number, barrier):
        self.number = number
        self.barrier = barrier

    def execute_on(self, session):
        self.barrier.wait(60)
        return session.with_metadata("winner", self.number)


def test_of_sixteen_that_loaded_one_saves(session, run_threads, heard):
    from threading import Barrier

    barrier = Barrier(WORKERS)
    outcomes = run_threads(WORKERS, lambda n: SessionRuntime().execute("s", Together(n, barrier)))

    [winner], losers = split(outcomes, AgentSession)
    assert winner.version == 2
    assert {type(error) for error in losers} == {SessionConflict}
    assert {(error.expected_version, error.current_version) for error in losers} == {(1, 2)}
    stored = SessionRuntime().get_session("s")
    assert stored == winner
    assert heard.names.count("session_saved") == 1
    assert heard.names.count("session_save_failed") == WORKERS - 1
    assert heard.names.count("session_action_executed") == WORKERS
    saved = next(values for name, values in heard if name == "session_saved")
    assert (saved["version"], winner.state.metadata) == (2, stored.state.metadata)
    assert_invariants("s")


def test_who_tries_again_gets_through(session, run_threads):
    def until_saved(number):
        conflicts = 0
        while True:
            try:
                SessionRuntime().execute("s", WriteMetadata(f"k{number}", number))
            except SessionConflict:
                conflicts += 1
            else:
                return conflicts

    outcomes = run_threads(8, until_saved)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)], outcomes
    stored = SessionRuntime().get_session("s")
    assert stored.version == 9
    assert stored.state.metadata == {f"k{number}": number for number in range(8)}


def test_messages_and_changes_at_once(session, run_threads):
    """Every message whose sender was not refused at once is in the transcript, answered or not."""

    def work(number):
        runtime = SessionRuntime()
        called = []

        def agent(given):
            called.append(number)
            time.sleep(0.01)
            return f"re {number}"

        action = SendMessage(f"m{number}", agent) if number % 2 else ChangeModel(f"model {number}")
        try:
            runtime.execute("s", action)
        except SessionConflict:
            return number, bool(called), False
        return number, bool(called), True

    outcomes = run_threads(WORKERS, work)
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)], outcomes
    said = [message["content"] for message in SessionRuntime().get_session("s").state.messages]
    for number, called, saved in outcomes:
        if number % 2:
            assert (f"m{number}" in said) == called
            assert (f"re {number}" in said) == saved
    version = 1 + sum(called + saved if n % 2 else saved for n, called, saved in outcomes)
    assert SessionStore().load_state("s").version == version
    assert_invariants("s")


def test_forks_do_not_stand_in_each_others_way(session, run_threads):
    outcomes = run_threads(WORKERS, lambda n: SessionRuntime().execute("s", ForkSession(f"f{n}")))
    forks, errors = split(outcomes, AgentSession)
    assert not errors
    assert {fork.version for fork in forks} == {1}
    assert SessionRuntime().get_session("s") == session


def test_one_of_sixteen_takes_an_id(run_threads):
    outcomes = run_threads(WORKERS, lambda n: SessionRuntime().create(DEFINITION, session_id="s"))
    [made], losers = split(outcomes, AgentSession)
    assert {type(error) for error in losers} == {SessionExists}
    assert SessionRuntime().get_session("s") == made


def hang(session):
    """An agent that says it was called, and never answers."""
    SessionStore().create_session(f"called-{session.session_id}", agent_type="flag")
    time.sleep(600)


def send(key):
    SessionRuntime().execute(key, SendMessage("hello", hang))


def wait_for(key):
    ends = time.monotonic() + 60
    while not SessionStore().session_exists(key):
        assert time.monotonic() < ends, "the agent was never called"
        time.sleep(0.02)


def test_a_crash_does_not_lose_the_message(runtime, session, store):
    worker = Worker(send, "s")
    try:
        worker.wait_until_ready()
        worker.go()
        wait_for("called-s")
        store.emit_event("s", "note")  # nobody holds the row
    finally:
        worker.kill()
    left = runtime.get_session("s")
    assert (left.version, left.state.messages, left.status) == (2, [HELLO], "active")
    assert left.state.execution.status == "running"
    assert_invariants("s")
    saved = runtime.execute("s", SendMessage("again", lambda session: "hi"))
    assert [message["content"] for message in saved.state.messages] == ["hello", "again", "hi"]
    assert saved.state.execution.status == "completed"
    assert saved.state.execution_count == 2
