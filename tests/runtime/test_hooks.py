"""Hooks: when, in which order, and what becomes of what they return."""

import logging
from typing import Any, cast

import pytest

from helix_sessions.exceptions import InvalidInput, SessionExists
from helix_sessions.runtime import Hook, SendMessage, SessionRuntime, SuspendSession
from helix_sessions.runtime.hooks import STAGES
from helix_sessions.store import SessionStore
from tests.rows import each
from tests.runtime.conftest import DEFINITION

pytestmark = pytest.mark.django_db


def marks(name):
    """A hook that writes its name into the metadata."""
    return lambda session: session.with_metadata("seen", [*session.state.metadata.get("seen", []), name])


def traced(stages=STAGES):
    trace = []

    def hook(stage):
        def note(session):
            trace.append((stage, session.version, session.status))
            return session

        return note

    return trace, SessionRuntime(hooks=[Hook(stage, hook(stage)) for stage in stages])


def fails(session):
    raise RuntimeError("a hook")


def test_the_stages_of_an_execution(session):
    trace, runtime = traced()
    runtime.execute("s", SuspendSession())
    assert trace == [
        ("after_load", 1, "active"),
        ("after_action", 1, "suspended"),
        ("before_save", 1, "suspended"),
        ("after_save", 2, "suspended"),
    ]


def test_the_stages_of_a_creation():
    trace, runtime = traced()
    runtime.create(DEFINITION, session_id="s")
    assert [(stage, version) for stage, version, _ in trace] == [
        ("before_create", 0),
        ("before_save", 0),
        ("after_save", 1),
        ("after_create", 1),
    ]


def test_the_stages_of_a_message(session):
    trace, runtime = traced()
    runtime.execute("s", SendMessage("hello", lambda session: "hi"))
    assert [(stage, version) for stage, version, _ in trace] == [
        ("after_load", 1),
        ("before_save", 1),
        ("after_save", 2),
        ("after_action", 2),
        ("before_save", 2),
        ("after_save", 3),
    ]


def test_reading_runs_those_after_the_load(session):
    trace, runtime = traced()
    runtime.get_session("s")
    runtime.get_session_info("s")
    runtime.list_sessions()
    assert [stage for stage, *_ in trace] == ["after_load", "after_load"]


def test_higher_priority_first_then_in_the_order_given(session):
    runtime = SessionRuntime(
        hooks=[
            Hook("before_save", marks("a")),
            Hook("before_save", marks("low"), priority=-1),
            Hook("before_save", marks("b")),
            Hook("before_save", marks("high"), 10),
            Hook("before_save", marks("c"), priority=0),
        ]
    )
    runtime.execute("s", SuspendSession())
    assert SessionStore().load_state("s").metadata == {"seen": ["high", "a", "b", "c", "low"]}


def test_what_is_saved_and_what_is_only_handed_back(session):
    hooks = [Hook(stage, marks(stage)) for stage in STAGES]
    acted = SessionRuntime(hooks=hooks).execute("s", SuspendSession())
    stored = SessionRuntime().get_session("s")
    assert stored.state.metadata == {"seen": ["after_load", "after_action", "before_save"]}
    assert acted.state.metadata["seen"][-1] == "after_save"
    made = SessionRuntime(hooks=hooks).create(DEFINITION, session_id="t")
    assert SessionRuntime().get_session("t").state.metadata == {"seen": ["before_create", "before_save"]}
    assert made.state.metadata["seen"][-2:] == ["after_save", "after_create"]


def test_what_is_handed_back_between_two_saves_is_not_saved_by_the_second(session):
    runtime = SessionRuntime(hooks=[Hook("after_save", marks("x"))])
    runtime.execute("s", SendMessage("hello", lambda session: "hi"))
    assert SessionStore().load_state("s").metadata == {}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("stage", ["after_load", "after_action", "before_save"])
def test_one_that_raises_before_the_save_saves_nothing(session, heard, stage):
    with pytest.raises(RuntimeError, match="a hook"):
        SessionRuntime(hooks=[Hook(stage, fails)]).execute("s", SuspendSession())
    assert SessionRuntime().get_session("s") == session
    assert "session_saved" not in heard.names
    assert "session_save_failed" not in heard.names


@each("stage", ["before_create", "before_save"])
def test_one_that_raises_before_the_creation_creates_nothing(stage):
    with pytest.raises(RuntimeError, match="a hook"):
        SessionRuntime(hooks=[Hook(stage, fails)]).create(DEFINITION, session_id="s")
    assert not SessionStore().session_exists("s")


@pytest.mark.django_db(transaction=True)
class TestAfterTheSave:
    def test_the_save_is_intact_and_told(self, session, heard):
        runtime = SessionRuntime(hooks=[Hook("after_save", fails)])
        with pytest.raises(RuntimeError, match="a hook"):
            runtime.execute("s", SuspendSession())
        stored = SessionRuntime().get_session("s")
        assert (stored.version, stored.status) == (2, "suspended")
        assert heard.names[:3] == ["session_loaded", "session_action_executed", "session_saved"]
        assert "session_save_failed" not in heard.names

    def test_it_is_reported_apart(self, session, caplog):
        runtime = SessionRuntime(hooks=[Hook("after_save", fails)])
        with caplog.at_level(logging.ERROR, "helix_sessions.runtime"), pytest.raises(RuntimeError) as raised:
            runtime.execute("s", SuspendSession())
        assert str(raised.value) == "a hook"
        [note] = raised.value.__notes__
        assert "was saved at version 2" in note
        assert "after_save" in note
        [record] = caplog.records
        assert "was saved at version 2" in record.getMessage()

    @pytest.mark.parametrize("stage", ["after_save", "after_create"])
    def test_of_a_creation(self, heard, stage):
        runtime = SessionRuntime(hooks=[Hook(stage, fails)])
        with pytest.raises(RuntimeError, match="a hook"):
            runtime.create(DEFINITION, session_id="s")
        assert SessionRuntime().get_session("s").version == 1
        assert heard.names[0] == "session_saved"
        with pytest.raises(SessionExists):
            runtime.create(DEFINITION, session_id="s")

    def test_of_the_first_save_of_a_message(self, session):
        called = []
        runtime = SessionRuntime(hooks=[Hook("after_save", fails)])
        with pytest.raises(RuntimeError, match="a hook"):
            runtime.execute("s", SendMessage("hello", lambda session: called.append(1)))
        assert not called
        assert SessionStore().get_messages("s").messages == [{"role": "user", "content": "hello"}]


@each("hooks", [[None], [lambda session: session], [("after_load", fails)]], ids=str)
def test_what_is_no_hook_is_refused(hooks):
    with pytest.raises(InvalidInput):
        SessionRuntime(hooks=hooks)


def test_hooks_of_nonsense_are_refused(session):
    with pytest.raises(InvalidInput):
        Hook("after_lunch", fails)
    with pytest.raises(InvalidInput):
        Hook("after_load", cast(Any, None))
    forgetful: Any = lambda session: None  # noqa: E731
    with pytest.raises(InvalidInput):
        SessionRuntime(hooks=[Hook("after_load", forgetful)]).get_session("s")
