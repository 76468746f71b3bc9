"""A session goes on: one of N callers, with every answer in its place."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import (
    InvalidInput,
    NotResumable,
    RunExists,
    RunInProgress,
    SessionNotFound,
    StaleState,
    StillWaiting,
)
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from tests.contract.suspended import (
    approval,
    asked,
    calling,
    child,
    error,
    messages,
    result,
    suspend,
    suspended,
    wait_for,
)
from tests.invariants import assert_invariants, assert_valid_transcript, dump
from tests.rows import each

pytestmark = pytest.mark.django_db

INTERRUPTED = "Tool execution interrupted"


def test_a_client_tool(store: SessionStore):
    suspended(store, "s", asked("a"), suspension_context={"loop": 1}, suspended_step_id="step")
    store.set_interrupt_flag("s", "stop")
    store.submit_tool_result("s", "a", result={"x": 1})
    before = store.load_state("s")

    answer = store.resume("s", message="go on", run_id="second", expected_version=before.version)

    assert answer.state == store.load_state("s")
    assert answer.run == store.get_current_run("s")
    assert (answer.run.run_id, answer.run.turn) == ("second", 2)
    assert answer.tool_messages == [result("a", {"x": 1})]
    assert (answer.approved, answer.respawn) == ([], [])
    now = answer.state
    assert (now.resume_count, now.version) == (before.resume_count + 1, before.version + 1)
    assert now.pending_client_tool_calls == {}
    assert list(now.completed_client_tool_calls or {}) == ["a"]
    assert (now.suspension_context, now.suspended_step_id) == (None, None)
    assert store.check_interrupt_flag("s") is None
    assert messages(store, "s") == [
        {"role": "user", "content": "hello"},
        calling("a"),
        result("a", {"x": 1}),
        {"role": "user", "content": "go on"},
    ]
    assert_invariants("s")
    assert_valid_transcript("s")


def test_answers_come_in_call_order(store: SessionStore):
    suspended(store, "s", asked("a"), approval("b"), asked("c"), approval("d"))
    store.submit_tool_result("s", "d", approved=False, reason="no")
    store.submit_tool_result("s", "c", error="broken")
    store.submit_tool_result("s", "b", approved=True)
    store.submit_tool_result("s", "a", result=1)
    answer = store.resume("s")
    assert answer.tool_messages == [result("a", 1), error("c", "broken"), error("d", "no")]
    assert messages(store, "s")[2:] == answer.tool_messages
    [entry] = answer.approved
    assert {"tool_call_id", "tool_name", "arguments", "kind", "run_id", "requested_at"} <= set(entry)
    assert entry["tool_call_id"] == "b"
    store.append_messages("s", [result("b", "executed")])
    assert_valid_transcript("s")


def test_a_mixed_batch(store: SessionStore):
    """Server tools that are ready are committed with the suspension, the others when it is over."""
    store.begin_turn("s", message="hello")
    suspend(
        store,
        "s",
        asked("b"),
        kind="step_partial",
        append_messages=[calling("a", "b", "c"), result("a"), result("c")],
        suspended_step_id="step",
    )
    store.submit_tool_result("s", "b", result=2)
    assert store.resume("s").tool_messages == [result("b", 2)]
    assert_valid_transcript("s")


def test_children(store: SessionStore):
    store.begin_turn("s", message="hello")
    for number in "xyz":
        child(store, "s", f"kid-{number}", number)
    waits = [wait_for(number, f"kid-{number}") for number in "xyz"]
    suspend(
        store,
        "s",
        kind="awaiting_children",
        append_messages=[calling("x", "y", "z")],
        awaiting_children=waits,
    )
    store.settle_child("kid-z", "completed", output={"answer": 42})
    store.settle_child("kid-y", "failed", error="broke")
    with pytest.raises(StillWaiting) as caught:
        store.resume("s")
    assert (caught.value.tool_call_ids, caught.value.sub_session_ids) == ((), ("kid-x",))
    store.settle_child("kid-x", "completed")
    answer = store.resume("s", message="thanks")
    assert answer.tool_messages == [result("x", None), error("y", "broke"), result("z", {"answer": 42})]
    assert answer.state.suspended_awaiting_children == {}
    assert_invariants("s")
    assert_valid_transcript("s")


def test_still_waiting_changes_nothing(store: SessionStore):
    store.begin_turn("s", message="hello")
    child(store, "s", "kid", "c")
    suspend(
        store,
        "s",
        asked("a"),
        approval("b"),
        append_messages=[calling("a", "b", "c")],
        awaiting_children=[wait_for("c", "kid")],
    )
    store.submit_tool_result("s", "a", result=1)
    before = dump()
    with pytest.raises(StillWaiting) as caught:
        store.resume("s", message="now?")
    assert (caught.value.tool_call_ids, caught.value.sub_session_ids) == (("b",), ("kid",))
    assert dump() == before


@each("status", ["interrupted", "paused"])
def test_a_stopped_session(store: SessionStore, status: str):
    """What a crash left open is failed before anything is said."""
    store.begin_turn("s", message="hello", run_id="r")
    store.append_messages("s", [calling("a", "b"), result("a")])
    store.update_run_status("s", "r", "interrupted")
    store.update_status("s", status, interrupt_context={"at": 1}, error="e")
    answer = store.resume("s", message="again")
    assert (answer.state.status, answer.state.interrupt_context, answer.state.error) == ("active", None, None)
    assert messages(store, "s")[3:] == [error("b", INTERRUPTED), {"role": "user", "content": "again"}]
    assert answer.tool_messages == [error("b", INTERRUPTED)]
    assert_invariants("s")
    assert_valid_transcript("s")


def test_an_interrupted_session_that_waits(store: SessionStore):
    suspended(store, "s", asked("a"))
    store.update_status("s", "interrupted")
    with pytest.raises(StillWaiting):
        store.resume("s")
    store.submit_tool_result("s", "a", result=1)
    assert store.resume("s").state.status == "active"


@each("status", ["completed", "failed"])
def test_a_terminal_session(store: SessionStore, status: str):
    suspended(store, "s", asked("a"))
    store.submit_tool_result("s", "a", result=1)
    store.update_status("s", status)
    before = dump()
    with pytest.raises(NotResumable) as caught:
        store.resume("s")
    assert caught.value.code == "not_resumable"
    assert dump() == before


def test_an_active_session_that_is_not_suspended(store: SessionStore):
    store.create_session("s", agent_type="agent")
    with pytest.raises(NotResumable):
        store.resume("s")
    store.begin_turn("s", run_id="r")
    with pytest.raises(RunInProgress):
        store.resume("s")
    store.update_run_status("s", "r", "completed")
    with pytest.raises(NotResumable):
        store.resume("s")


def test_the_last_run_says_whether_it_is_suspended(store: SessionStore):
    """Not one that was suspended before."""
    suspended(store, "s", kind="step_partial")
    store.resume("s", run_id="second")
    store.update_run_status("s", "second", "completed")
    with pytest.raises(NotResumable):
        store.resume("s")


def test_a_suspension_that_waits_for_nothing(store: SessionStore):
    suspended(store, "s", kind="step_partial")
    assert store.resume("s").run.turn == 2
    with pytest.raises(RunInProgress):
        store.resume("s")


def test_refusals(store: SessionStore):
    suspended(store, "s", asked("a"))
    store.submit_tool_result("s", "a", result=1)
    before = dump()
    refused: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"expected_version": 99}, StaleState),
        ({"run_id": "first"}, RunExists),
        ({"message": 7}, InvalidInput),
    ]
    for options, expected in refused:
        with pytest.raises(expected):
            store.resume("s", **options)
    with pytest.raises(SessionNotFound):
        store.resume("gone")
    assert dump() == before


def test_a_message_does_not_come_between_an_approved_call_and_its_result(store: SessionStore):
    suspended(store, "s", approval("a"))
    store.submit_tool_result("s", "a", approved=True)
    with pytest.raises(StillWaiting) as caught:
        store.resume("s", message="and also")
    assert caught.value.tool_call_ids == ("a",)
    store.resume("s")
    store.append_messages("s", [result("a"), {"role": "user", "content": "and also"}])
    assert_valid_transcript("s")


def test_an_approved_call_that_died_is_failed_and_not_repeated(store: SessionStore):
    suspended(store, "s", approval("a"))
    store.submit_tool_result("s", "a", approved=True)
    run = store.resume("s").run
    store.update_run_status("s", run.run_id, "interrupted")
    store.update_status("s", "interrupted")
    again = store.resume("s", message="again")
    assert again.approved == []
    assert again.tool_messages == [error("a", INTERRUPTED)]
    assert_valid_transcript("s")


def test_list_runs_grows_by_one_with_each_turn(store: SessionStore):
    suspended(store, "s", asked("a"))
    store.submit_tool_result("s", "a", result=1)
    run = store.resume("s").run
    store.update_run_status("s", run.run_id, "completed")
    store.update_status("s", "completed")
    store.begin_turn("s", message="more")
    statuses = [run.status for run in store.list_runs("s").items]
    assert statuses == ["running", "completed", "suspended_client_tool"]


def test_a_session_saved_as_suspended_by_hand(store: SessionStore):
    """The step commit can suspend as well: pending calls in the state are what counts."""
    store.begin_turn("s", run_id="r")
    entry = {"tool_call_id": "a", "tool_name": "tool_a", "kind": "client_tool"}
    state = replace(store.load_state("s"), pending_client_tool_calls={"a": entry})
    store.save_state_and_promote_staging("s", state, [calling("a")])
    store.update_run_status("s", "r", "suspended_client_tool")
    assert store.submit_tool_result("s", "a", result=1).outcome == "accepted"
    assert store.resume("s").tool_messages == [result("a", 1)]
    assert store.submit_tool_result("s", "a", result=1).outcome == "already_completed"


def test_deadlines_go_by_the_clock(store: SessionStore) -> None:
    """Not by the session's time, which a machine whose clock was ahead has set forward."""
    now = timezone.now()
    suspended(store, "s", asked("a", deadline=now + timedelta(minutes=30)))
    Session.objects.filter(session_id="s").update(updated_at=now + timedelta(hours=1))
    with pytest.raises(StillWaiting):
        store.resume("s")


def test_what_went_wrong_before_is_forgotten(store: SessionStore) -> None:
    store.begin_turn("s", run_id="r")
    before = replace(store.load_state("s"), error="broke", failure_reason="model", interrupt_context={"a": 1})
    suspend(store, "s", asked("a"), state=before)
    assert store.load_state("s").error == "broke"
    store.submit_tool_result("s", "a", result=1)

    now = store.resume("s").state
    assert (now.error, now.failure_reason, now.interrupt_context) == (None, None, None)


def test_a_child_that_was_not_called_for_has_its_result_too(store: SessionStore) -> None:
    store.begin_turn("parent", message="hello")
    child(store, "parent", "kid", "c")
    suspend(store, "parent", kind="awaiting_children", awaiting_children=[wait_for("c", "kid")])
    store.settle_child("kid", "completed", output=1)

    [told] = store.resume("parent").tool_messages
    assert told == {"role": "tool", "tool_call_id": "c", "tool_name": "helper", "content": 1}
