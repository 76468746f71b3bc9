"""Signals: in order, and only for what happened."""

import pytest
from django.db import transaction

from helix_sessions import signals
from helix_sessions.exceptions import SessionConflict, SessionExists, SessionNotFound
from helix_sessions.runtime import ChangeModel, ForkSession, SendMessage, SessionRuntime, SuspendSession
from helix_sessions.store import SessionStore
from tests.runtime.conftest import DEFINITION

pytestmark = pytest.mark.django_db(transaction=True)


def told(name, **values):
    return name, {"sender": SessionRuntime, **values}


def test_an_execution(runtime, session, heard):
    runtime.execute("s", SuspendSession())
    assert heard == [
        told("session_loaded", session_id="s", version=1, status="active"),
        told(
            "session_action_executed",
            session_id="s",
            action="SuspendSession",
            before_version=1,
            after_version=1,
            before_status="active",
            after_status="suspended",
        ),
        told("session_saved", session_id="s", version=2, status="suspended"),
    ]


def test_reads(runtime, session, heard):
    runtime.get_session("s")
    runtime.get_session_info("s")
    assert heard == [told("session_loaded", session_id="s", version=1, status="active")] * 2


def test_a_listing_sends_none(runtime, session, heard):
    runtime.list_sessions()
    assert heard == []


def test_a_creation(runtime, heard):
    runtime.create(DEFINITION, session_id="s")
    assert heard == [told("session_saved", session_id="s", version=1, status="active")]


def test_a_creation_that_fails(runtime, session, heard):
    with pytest.raises(SessionExists):
        runtime.create(DEFINITION, session_id="s")
    [(name, values)] = heard
    assert (name, values["session_id"]) == ("session_save_failed", "s")
    assert values["error_type"] == "SessionExists"
    assert "'s'" in values["error"]


def test_a_load_that_fails(runtime, heard):
    for call in (
        runtime.get_session,
        runtime.get_session_info,
        lambda key: runtime.execute(key, ChangeModel("m")),
    ):
        with pytest.raises(SessionNotFound) as raised:
            call("u")
        assert heard.pop() == told(
            "session_load_failed", session_id="u", error=str(raised.value), error_type="SessionNotFound"
        )
        assert heard == []


def test_an_action_that_raises(runtime, session, heard):
    class Fails:
        def execute_on(self, session):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        runtime.execute("s", Fails())
    assert heard.names == ["session_loaded"]


def test_a_conflict(runtime, session, heard):
    class Late:
        def execute_on(self, session):
            SessionStore().patch_metadata("s", {"a": 1})
            return session

    with pytest.raises(SessionConflict) as raised:
        runtime.execute("s", Late())
    assert heard.names == ["session_loaded", "session_action_executed", "session_save_failed"]
    assert heard[-1] == told(
        "session_save_failed", session_id="s", error=str(raised.value), error_type="SessionConflict"
    )


def test_a_message_is_saved_before_the_action_is_through(runtime, session, heard):
    runtime.execute("s", SendMessage("hello", lambda session: "hi"))
    assert [(name, values.get("version")) for name, values in heard] == [
        ("session_loaded", 1),
        ("session_saved", 2),
        ("session_action_executed", None),
        ("session_saved", 3),
    ]
    executed = heard[2][1]
    assert (executed["action"], executed["before_version"], executed["after_version"]) == (
        "SendMessage",
        1,
        2,
    )


def test_a_fork(runtime, session, heard):
    runtime.execute("s", ForkSession("f"))
    assert heard.names == ["session_loaded", "session_action_executed", "session_saved"]
    assert heard[1][1]["session_id"] == "s"
    assert (heard[1][1]["before_version"], heard[1][1]["after_version"]) == (1, 1)
    assert heard[2] == told("session_saved", session_id="f", version=1, status="active")


class TestAnOuterTransaction:
    def test_saved_means_committed(self, runtime, session, heard):
        with transaction.atomic():
            runtime.execute("s", SuspendSession())
            runtime.execute("s", ChangeModel("m"))
            runtime.create(DEFINITION, session_id="t")
            assert "session_saved" not in heard.names
        saved = [values for name, values in heard if name == "session_saved"]
        assert [(each["session_id"], each["version"]) for each in saved] == [("s", 2), ("s", 3), ("t", 1)]

    def test_what_is_rolled_back_was_not_saved(self, runtime, session, heard):
        with transaction.atomic():
            runtime.execute("s", SuspendSession())
            transaction.set_rollback(True)
        assert heard.names == ["session_loaded", "session_action_executed"]
        assert runtime.get_session("s") == session

    def test_part_of_it_rolled_back(self, runtime, session, heard):
        with transaction.atomic():
            runtime.execute("s", ChangeModel("m"))
            with transaction.atomic():
                runtime.execute("s", SuspendSession())
                transaction.set_rollback(True)
        saved = [(values["version"], values["status"]) for name, values in heard if name == "session_saved"]
        assert saved == [(2, "active")]
        assert runtime.get_session("s").state.model == "m"


@pytest.mark.parametrize("name", ["session_loaded", "session_action_executed", "session_saved"])
def test_a_receiver_that_raises_disturbs_nobody(runtime, session, heard, name):
    def fails(**told):
        raise RuntimeError("a receiver")

    getattr(signals, name).connect(fails)
    try:
        assert runtime.execute("s", SuspendSession()).version == 2
    finally:
        getattr(signals, name).disconnect(fails)
    assert heard.names == ["session_loaded", "session_action_executed", "session_saved"]


def test_a_runtime_of_ones_own_is_heard_too(session, heard):
    class Mine(SessionRuntime):
        pass

    Mine().execute("s", SuspendSession())
    assert {values["sender"] for _, values in heard} == {SessionRuntime}
