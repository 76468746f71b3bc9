"""A session is suspended: one commit, and everything it needs to go on lies in the row."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import (
    CommitConflict,
    InvalidDocument,
    InvalidInput,
    RunNotFound,
    SessionNotFound,
    StaleState,
)
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from tests.contract.suspended import (
    approval,
    asked,
    calling,
    child,
    messages,
    result,
    suspend,
    suspended,
    wait_for,
)
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db


def digest(name: str, arguments: str) -> str:
    return sha256(f'["{name}",{arguments}]'.encode()).hexdigest()


def test_everything_is_in_the_row(store: SessionStore):
    turn = store.begin_turn("s", message="hello", run_id="r")
    store.stage_changes("s", "step", "x", [{"op": "set", "path": ["staged"], "value": 1}])
    deadline = timezone.now() + timedelta(hours=1)
    state = replace(turn.state, step_count=3, custom_state={"a": 1})

    outcome = store.suspend(
        "s",
        "step_partial",
        state=state,
        run_id="r",
        append_messages=[calling("x", "a", "b"), result("x")],
        pending_calls=[asked("a", deadline=deadline), {**_dict(approval("b")), "approval_id": "p"}],
        suspended_step_id="step",
        suspension_context={"loop": [1, 2]},
        checkpoint_meta={"step_id": "step", "metadata": {"m": 1}},
        expected_version=turn.state.version,
    )

    now = store.load_state("s")
    assert outcome.version == now.version == turn.state.version + 1
    assert (outcome.head_seq, outcome.checkpoint_id) == (now.head_seq, now.checkpoint_id)
    assert (now.status, now.step_count, now.custom_state) == ("active", 3, {"a": 1, "staged": 1})
    assert now.pending_client_tool_calls == {
        "a": {
            "tool_call_id": "a",
            "tool_name": "tool_a",
            "arguments": {"of": "a"},
            "kind": "client_tool",
            "approval_id": None,
            "deadline": deadline.astimezone(UTC).isoformat(),
            "response_schema": None,
            "arguments_digest": digest("tool_a", '{"of":"a"}'),
            "run_id": "r",
            "requested_at": now.updated_at.isoformat() if now.updated_at else "",
            "response": None,
            "submitted_at": None,
        },
        "b": {
            "tool_call_id": "b",
            "tool_name": "tool_b",
            "arguments": {"of": "b"},
            "kind": "approval",
            "approval_id": "p",
            "deadline": None,
            "response_schema": None,
            "arguments_digest": digest("tool_b", '{"of":"b"}'),
            "run_id": "r",
            "requested_at": now.updated_at.isoformat() if now.updated_at else "",
            "response": None,
            "submitted_at": None,
        },
    }
    assert now.client_tool_call_ownership == {"a": "s", "b": "s"}
    assert (now.suspended_step_id, now.suspension_context) == ("step", {"loop": [1, 2]})
    run = store.get_run("s", "r")
    assert (run.status, run.end_sequence is not None) == ("suspended_step_partial", True)
    assert store.get_current_run("s") is None
    checkpoint = store.get_checkpoint("s", outcome.checkpoint_id or "")
    assert (checkpoint.run_id, checkpoint.source, checkpoint.state) == ("r", "staging", now)
    row = Session.objects.get(session_id="s")
    assert (row.awaiting_client, row.next_deadline) == (True, deadline)
    assert_invariants("s")


def _dict(call: Any) -> dict[str, Any]:
    return {name: getattr(call, name) for name in call.__slots__}


@each("kind", ["client_tool", "awaiting_children", "step_partial"])
def test_the_run_says_what_it_waits_for(store: SessionStore, kind: str):
    suspended(store, "s", kind=kind)
    assert store.list_runs("s").items[0].status == f"suspended_{kind}"
    assert store.load_state("s").status == "active"


def test_the_root_knows_the_owner(store: SessionStore):
    store.begin_turn("root", message="hello")
    child(store, "root", "middle", "c1")
    child(store, "middle", "leaf", "c2")
    before = store.load_state("root").version

    suspend(store, "leaf", asked("a"))

    root = store.load_state("root")
    assert root.client_tool_call_ownership == {"a": "leaf"}
    assert root.version == before + 1
    assert store.load_state("middle").client_tool_call_ownership is None
    for key in ("root", "middle", "leaf"):
        assert_invariants(key)


def test_lost_answer(store: SessionStore):
    """The commit is known by its checkpoint id; the same again is the first result, another a conflict."""
    turn = store.begin_turn("s", run_id="r")
    options: dict[str, Any] = {
        "state": turn.state,
        "run_id": "r",
        "append_messages": [calling("a")],
        "pending_calls": [asked("a")],
        "checkpoint_meta": {"checkpoint_id": "c"},
        "expected_version": turn.state.version,
    }
    first = store.suspend("s", "client_tool", **options)
    store.submit_tool_result("s", "a", result=1)
    before = dump()
    again = store.suspend("s", "client_tool", **options)
    assert again == replace(first, replayed=True)
    others: list[dict[str, Any]] = [
        {"pending_calls": [asked("b")]},
        {"append_messages": []},
        {"suspension_context": 1},
        {"awaiting_children": [wait_for("c", "kid")]},
    ]
    for other in others:
        with pytest.raises(CommitConflict):
            store.suspend("s", "client_tool", **{**options, **other})
    with pytest.raises(CommitConflict):
        store.suspend("s", "step_partial", **options)
    assert dump() == before


@each(
    ("kind", "options", "expected"),
    [
        ("nothing", {}, InvalidInput),
        ("client_tool", {"state": {}}, InvalidInput),
        ("client_tool", {"run_id": "unknown"}, RunNotFound),
        ("client_tool", {"expected_version": 99}, StaleState),
        ("client_tool", {"pending_calls": [asked("a"), asked("a")]}, InvalidInput),
        ("client_tool", {"pending_calls": ["a"]}, InvalidInput),
        ("client_tool", {"pending_calls": [{"tool_call_id": "a"}]}, InvalidInput),
        ("client_tool", {"pending_calls": [asked("a", kind="other")]}, InvalidInput),
        ("client_tool", {"pending_calls": [asked("a", deadline=datetime(2030, 1, 1))]}, InvalidInput),
        ("client_tool", {"pending_calls": [replace(asked("a"), arguments=float("nan"))]}, InvalidDocument),
        ("client_tool", {"pending_calls": [replace(asked("a"), tool_call_id="x" * 257)]}, InvalidInput),
        ("awaiting_children", {"awaiting_children": [wait_for("c", "x"), wait_for("c", "y")]}, InvalidInput),
        ("client_tool", {"append_messages": [{"role": "nobody"}]}, InvalidInput),
        ("client_tool", {"suspension_context": float("inf")}, InvalidDocument),
    ],
)
def test_refusals(store: SessionStore, kind: str, options: dict[str, Any], expected: type[Exception]):
    turn = store.begin_turn("s", run_id="r")
    before = dump()
    with pytest.raises(expected):
        store.suspend("s", kind, **{"state": turn.state, "run_id": "r", **options})
    assert dump() == before


def test_an_unknown_session_and_a_run_that_ended(store: SessionStore):
    turn = store.begin_turn("s", run_id="r")
    with pytest.raises(SessionNotFound):
        store.suspend("gone", "client_tool", state=turn.state, run_id="r")
    store.update_run_status("s", "r", "interrupted")
    with pytest.raises(InvalidInput):
        store.suspend("s", "client_tool", state=turn.state, run_id="r")


def test_a_stopped_state_is_committed_as_active(store: SessionStore):
    turn = store.begin_turn("s", run_id="r")
    store.suspend("s", "client_tool", state=replace(turn.state, status="interrupted"), run_id="r")
    assert store.load_state("s").status == "active"


def test_what_waits_is_found_without_reading_documents(store: SessionStore):
    suspended(store, "s", asked("a"))
    store.begin_turn("other")
    assert list(Session.objects.awaiting_client().values_list("session_id", flat=True)) == ["s"]
    store.submit_tool_result("s", "a", result=1)
    assert not Session.objects.awaiting_client().exists()


def test_states_saved_with_pending_calls_of_their_own(store: SessionStore):
    """What is derived from the pending calls follows whoever writes them."""
    store.create_session("s", agent_type="agent")
    deadline = timezone.now()
    entries = {"a": {"deadline": deadline.isoformat()}, "b": "anything", "c": {"deadline": "never"}}
    store.save_state("s", replace(store.load_state("s"), pending_client_tool_calls=entries))
    row = Session.objects.get(session_id="s")
    assert (row.awaiting_client, row.next_deadline) == (True, deadline)
    entries = {"a": {"deadline": deadline.isoformat(), "submitted_at": "now"}}
    store.save_state("s", replace(store.load_state("s"), pending_client_tool_calls=entries))
    row = Session.objects.get(session_id="s")
    assert (row.awaiting_client, row.next_deadline) == (False, None)
    assert store.load_state("s").pending_client_tool_calls == entries
    assert_invariants("s")


def test_calls_that_wait_already_go_on_waiting(store: SessionStore):
    """Those of the state that is committed, beside those it is suspended for."""
    store.begin_turn("s")
    own = {"tool_call_id": "own", "tool_name": "t", "kind": "client_tool"}
    state = replace(store.load_state("s"), pending_client_tool_calls={"own": own})
    suspend(store, "s", asked("a"), state=state)
    assert list(store.load_state("s").pending_client_tool_calls or {}) == ["own", "a"]
    assert store.submit_tool_result("s", "own", result=1).remaining == 1
    assert_invariants("s")


def test_children_that_are_awaited_already_are_awaited_on(store: SessionStore):
    store.begin_turn("s")
    child(store, "s", "one", "c1")
    child(store, "s", "two", "c2")
    own = {"c1": {"parent_tool_call_id": "c1", "sub_session_id": "one", "agent_type": "helper"}}
    state = replace(store.load_state("s"), suspended_awaiting_children=own)
    waits = [wait_for("c2", "two")]
    suspend(store, "s", kind="awaiting_children", state=state, awaiting_children=waits)

    assert list(store.load_state("s").suspended_awaiting_children or {}) == ["c1", "c2"]
    assert [store.load_state(key).status for key in ("one", "two")] == ["active", "active"]


def test_a_hundred_calls_do_not_grow_the_row_for_ever(store: SessionStore):
    """The maps show what waits and the last calls consumed; what was long ago is known all the same."""
    store.begin_turn("s")
    for turn in range(30):
        ids = [f"{turn}-{n}" for n in range(10)]
        suspend(store, "s", *(asked(call_id) for call_id in ids))
        for call_id in ids:
            assert store.submit_tool_result("s", call_id, result=1).outcome == "accepted"
        store.resume("s")
    state = store.load_state("s")
    assert len(state.completed_client_tool_calls or {}) == len(state.client_tool_call_ownership or {}) == 256
    assert "29-9" in (state.completed_client_tool_calls or {})
    assert store.submit_tool_result("s", "0-0", result=2).outcome == "already_completed"
    assert len(messages(store, "s")) == 30 * 11
    assert_invariants("s")
