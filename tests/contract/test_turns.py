"""A turn begins: of a new session, of a branch, or of one that is continued."""

from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from helix_sessions.exceptions import (
    CheckpointNotFound,
    InvalidDocument,
    InvalidInput,
    RunExists,
    RunInProgress,
    SessionNotFound,
    StaleState,
    StillWaiting,
)
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.types import Run, SessionState, Turn
from tests.contract.suspended import (
    approval,
    asked,
    calling,
    child,
    error,
    messages,
    suspend,
    suspended,
    wait_for,
)
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db

INTERRUPTED = "Tool execution interrupted"


def test_a_new_session(store: SessionStore):
    turn = store.begin_turn("s", message="hello", agent_type="writer", custom_state={"a": [1]}, run_id="r")
    assert isinstance(turn, Turn)
    assert isinstance(turn.state, SessionState)
    assert isinstance(turn.run, Run)
    assert turn.state == store.load_state("s")
    assert (turn.state.version, turn.state.agent_type, turn.state.custom_state) == (1, "writer", {"a": [1]})
    assert (turn.run.run_id, turn.run.turn, turn.run.status) == ("r", 1, "running")
    assert store.get_current_run("s") == turn.run
    assert messages(store, "s") == [{"role": "user", "content": "hello"}]
    types = [event.type for event in store.get_events("s")]
    assert types == ["session_started", "user_message", "run_started"]
    assert_invariants("s")


def test_a_message_object_and_no_message(store: SessionStore):
    said = {"role": "user", "content": [{"type": "text", "text": "\x00"}], "id": 7}
    store.begin_turn("s", message=said)
    assert messages(store, "s") == [said]
    assert store.begin_turn("other").state.message_count == 0


def test_continuing_resets_the_budget_and_keeps_the_memory(store: SessionStore):
    store.begin_turn("s", message="one", custom_state={"memory": 1}, run_id="r1")
    state = replace(
        store.load_state("s"),
        status="completed",
        step_count=9,
        output={"x": 1},
        error="e",
        failure_reason="f",
    )
    store.save_state_and_promote_staging("s", state, [{"role": "assistant", "content": "done"}])
    store.update_run_status("s", "r1", "completed")

    turn = store.begin_turn("s", message="two", custom_state={"ignored": True}, agent_type="ignored")

    now = turn.state
    assert (now.status, now.step_count, now.output, now.error, now.failure_reason) == (
        "active",
        0,
        None,
        None,
        None,
    )
    assert now.custom_state == {"memory": 1}
    assert now.agent_type == "agent"
    assert now == store.load_state("s")
    assert now.version == state.version + 3
    assert [run.turn for run in store.list_runs("s").items] == [2, 1]
    assert messages(store, "s")[-1] == {"role": "user", "content": "two"}
    assert_invariants("s")


@each("status", ["active", "failed", "interrupted", "paused", "completed"])
def test_every_status_is_continued(store: SessionStore, status: str):
    store.create_session("s", agent_type="agent")
    store.update_status("s", status, interrupt_context={"why": 1}, error="e")
    state = store.begin_turn("s").state
    assert (state.status, state.interrupt_context, state.error) == ("active", None, None)


def test_the_finish_tool_left_open_is_healed(store: SessionStore):
    """A completed session whose last message is the finish call goes on with a valid transcript, which tells
    the model of no error."""
    store.create_session("s", agent_type="agent")
    finish = {"role": "assistant", "tool_calls": [{"id": "f", "name": "__finish__", "arguments": {"a": 1}}]}
    store.append_messages("s", [{"role": "user", "content": "1"}, finish])
    store.update_status("s", "completed", output={"a": 1})

    store.begin_turn("s", message="and now?")

    assert messages(store, "s")[2:] == [
        {
            "role": "tool",
            "tool_call_id": "f",
            "tool_name": "__finish__",
            "content": "Finished",
        },
        {"role": "user", "content": "and now?"},
    ]
    assert_invariants("s")


def test_open_calls_are_healed_in_call_order(store: SessionStore):
    store.create_session("s", agent_type="agent")
    store.append_messages("s", [calling("a", "b", "c"), {"role": "tool", "tool_call_id": "b", "content": 1}])
    store.begin_turn("s", message="go on")
    assert messages(store, "s")[2:4] == [error("a", INTERRUPTED), error("c", INTERRUPTED)]
    store.update_run_status("s", store.list_runs("s").items[0].run_id, "failed")
    before = store.get_message_count("s")
    store.begin_turn("s")
    assert store.get_message_count("s") == before, "healed twice"


def test_a_branch(store: SessionStore):
    store.begin_turn("s", message="one", custom_state={"n": 1}, run_id="r")
    store.save_state_and_promote_staging(
        "s", replace(store.load_state("s"), step_count=4), [calling("a")], {"checkpoint_id": "c"}
    )
    store.append_messages("s", [{"role": "tool", "tool_call_id": "a", "content": 1}])
    source = store.load_state("s")

    turn = store.begin_turn("b", message="what if", branch=("s", "c"))

    assert (turn.state.forked_from, turn.state.version, turn.state.step_count) == (("s", "c"), 1, 0)
    assert turn.state.custom_state == {"n": 1}
    assert messages(store, "b") == [
        {"role": "user", "content": "one"},
        calling("a"),
        error("a", INTERRUPTED),
        {"role": "user", "content": "what if"},
    ]
    assert store.load_state("s") == source
    assert_invariants("b")
    with pytest.raises(RunInProgress):
        store.begin_turn("b", branch=("s", "c"))


def test_a_branch_from_now_with_another_state(store: SessionStore):
    store.create_session("s", agent_type="agent", custom_state={"n": 1})
    turn = store.begin_turn("b", branch=("s", None), custom_state={"n": 2}, agent_type="other")
    assert (turn.state.custom_state, turn.state.agent_type) == ({"n": 2}, "other")
    assert turn.state == store.load_state("b")
    assert_invariants("b")


@each(
    ("options", "expected"),
    [
        ({"branch": ("gone", None)}, SessionNotFound),
        ({"branch": ("s", "gone")}, CheckpointNotFound),
        ({"branch": "s"}, InvalidInput),
        ({"branch": ("s",)}, InvalidInput),
        ({"message": 1}, InvalidInput),
        ({"message": {"role": "nobody"}}, InvalidInput),
        ({"message": {"role": "user", "content": float("nan")}}, InvalidDocument),
        ({"run_id": ""}, InvalidInput),
        ({"custom_state": []}, InvalidDocument),
        ({"expected_version": 1}, SessionNotFound),
    ],
)
def test_refusals_create_nothing(store: SessionStore, options: dict[str, Any], expected: type[Exception]):
    store.create_session("s", agent_type="agent")
    before = dump()
    with pytest.raises(expected):
        store.begin_turn("new", **options)
    assert dump() == before


def test_refusals_change_nothing(store: SessionStore):
    store.begin_turn("s", message="one", run_id="r")
    before = dump()
    with pytest.raises(RunInProgress):
        store.begin_turn("s", message="two")
    with pytest.raises(StaleState):
        store.begin_turn("s", message="two", expected_version=7)
    assert dump() == before
    store.update_run_status("s", "r", "completed")
    before = dump()
    with pytest.raises(RunExists):
        store.begin_turn("s", message="two", run_id="r")
    assert dump() == before


def test_pending_calls_and_children_refuse_a_turn(store: SessionStore):
    store.begin_turn("s", message="hello")
    child(store, "s", "kid", "c")
    suspend(store, "s", asked("a"), approval("b"), awaiting_children=[wait_for("c", "kid")])
    before = dump()
    with pytest.raises(StillWaiting) as caught:
        store.begin_turn("s", message="well?")
    assert (caught.value.tool_call_ids, caught.value.sub_session_ids) == (("a", "b"), ("kid",))
    assert caught.value.code == "still_waiting"
    assert dump() == before
    store.submit_tool_result("s", "a", result=1)
    with pytest.raises(StillWaiting) as caught:
        store.begin_turn("s")
    assert caught.value.tool_call_ids == ("b",)


def test_answers_nobody_consumed_refuse_a_turn(store: SessionStore):
    """They would be lost, or come after what the user says next: the session is resumed."""
    suspended(store, "s", asked("a"))
    store.submit_tool_result("s", "a", result=1)
    with pytest.raises(StillWaiting) as caught:
        store.begin_turn("s", message="well?")
    assert caught.value.tool_call_ids == ("a",)
    assert store.resume("s", message="well?").state.message_count == 4


@pytest.mark.django_db(transaction=True)
def test_awaited(astore: AsyncSessionStore):
    async def begin() -> Turn:
        return await astore.begin_turn("s", message="hello")

    assert async_to_sync(begin)().run.turn == 1


def test_a_long_transcript_is_not_read(store: SessionStore):
    def statements(key: str, count: int) -> int:
        store.create_session(key, agent_type="agent")
        for _ in range(count):
            store.append_messages(
                key, [calling("a"), {"role": "tool", "tool_call_id": "a", "content": 1}] * 250
            )
        store.append_messages(key, [calling("left")])
        with CaptureQueriesContext(connection) as queries:
            store.begin_turn(key, message="next")
        assert not any('SELECT "position"' in (query["sql"] or "") for query in queries)
        return len(queries)

    assert statements("long", 10) == statements("short", 1)
