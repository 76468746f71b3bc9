"""`ForkSession`: stored, linked to its parent, which stays as it is."""

import pytest

from helix_sessions.exceptions import InvalidInput, SessionConflict, SessionExists, SessionNotFound
from helix_sessions.runtime import (
    ChangeModel,
    ClearSession,
    ForkSession,
    SendMessage,
    SuspendSession,
    WriteMetadata,
)
from tests.rows import each

HELLO = {"role": "user", "content": "hello"}
pytestmark = pytest.mark.django_db


@pytest.fixture
def source(runtime, session, store):
    store.merge_custom_state("s", [{"op": "set", "path": ["mine"], "value": 1}])
    runtime.execute("s", WriteMetadata("tier", "gold"))
    runtime.execute("s", ChangeModel("large"))
    runtime.execute("s", SendMessage("hello", lambda session: "hi"))
    return runtime.execute("s", SuspendSession())


def test_a_fork_is_a_stored_session(runtime, source, store):
    fork = runtime.execute("s", ForkSession("f"))
    assert (fork.session_id, fork.version, fork.status) == ("f", 1, "active")
    assert fork.info.parent_id == "s"
    assert fork.definition == source.definition
    state = fork.state
    assert state.messages == source.state.messages == [HELLO, {"role": "assistant", "content": "hi"}]
    assert (state.metadata, state.model) == ({"tier": "gold"}, "large")
    assert (state.system_prompt, state.budget) == (source.state.system_prompt, source.state.budget)
    assert (state.execution_count, state.execution) == (0, None)
    assert fork == runtime.get_session("f")
    stored = store.load_state("f")
    assert (stored.parent_session_id, stored.root_session_id) == ("s", "s")
    assert stored.forked_from == ("s", None)
    assert stored.custom_state == {"mine": 1}


def test_the_source_is_as_it_was(runtime, source, store):
    before, events = store.load_state("s"), store.get_events("s")
    runtime.execute("s", ForkSession("f"))
    assert store.load_state("s") == before
    assert store.get_events("s") == events
    runtime.execute("f", ClearSession())
    assert runtime.get_session("s") == source


def test_without_an_id_it_gets_one(runtime, session):
    fork = runtime.execute("s", ForkSession())
    assert fork.session_id != "s"
    assert runtime.get_session(fork.session_id) == fork


def test_a_fork_of_a_fork(runtime, source, store):
    runtime.execute("s", ForkSession("f"))
    runtime.execute("f", ForkSession("g"))
    state = store.load_state("g")
    assert (state.parent_session_id, state.root_session_id) == ("f", "s")


def test_a_used_id(runtime, source):
    for taken in ("s", "f"):
        runtime.execute("s", ForkSession("f")) if taken == "f" else None
        with pytest.raises(SessionExists):
            runtime.execute("s", ForkSession(taken))
    assert runtime.get_session("s") == source


@each("bad", ["", "\x00", 1, "x" * 300])
def test_a_bad_id_fails_at_construction(bad):
    with pytest.raises(InvalidInput):
        ForkSession(bad)


def test_a_source_that_moves_on_is_a_conflict(runtime, source, store):
    class Slow(ForkSession):
        def execute_on(self, session):
            store.append_messages("s", [HELLO])
            return super().execute_on(session)

    with pytest.raises(SessionConflict):
        runtime.execute("s", Slow("f"))
    assert not store.session_exists("f")


def test_a_source_that_is_deleted(runtime, source, store):
    class Late(ForkSession):
        def execute_on(self, session):
            store.delete_session("s")
            return super().execute_on(session)

    with pytest.raises(SessionNotFound):
        runtime.execute("s", Late("f"))


def test_an_action_of_ones_own_may_fork(runtime, source, store):
    class ForkBeforeTheAnswer:
        def execute_on(self, session):
            fork = ForkSession("f").execute_on(session)
            return fork.with_state(messages=[*session.state.messages[:1], HELLO]).with_metadata("why", "test")

    fork = runtime.execute("s", ForkBeforeTheAnswer())
    assert fork.state.messages == [HELLO, HELLO]
    assert fork.state.metadata == {"tier": "gold", "why": "test"}
    assert (fork.version, store.load_state("f").message_count) == (1, 2)
    assert runtime.get_session("s") == source


def test_open_calls_go_with_it(runtime, session, store):
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "look", "arguments": {}}]}
    store.append_messages("s", [HELLO, call])
    runtime.execute("s", ForkSession("f"))
    saved = runtime.execute("f", SendMessage("and?", lambda session: "hi"))
    assert [message["role"] for message in saved.state.messages] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
