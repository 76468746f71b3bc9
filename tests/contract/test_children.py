"""Sub-agents: awaited, settled once, failed when their parent is suspended, handed back when it goes on."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from helix_sessions.exceptions import InvalidDocument, InvalidInput, SessionNotFound, StaleState
from helix_sessions.store import SessionStore
from tests.contract.suspended import asked, calling, child, error, result, suspend, wait_for
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db


@pytest.fixture
def parent(store: SessionStore) -> str:
    """A suspended session that waits for the sub-session `kid`."""
    store.begin_turn("parent", message="hello")
    child(store, "parent", "kid", "c")
    suspend(
        store,
        "parent",
        kind="awaiting_children",
        append_messages=[calling("c")],
        awaiting_children=[wait_for("c", "kid")],
    )
    return "parent"


def test_a_wait(store: SessionStore, parent: str):
    assert store.load_state(parent).suspended_awaiting_children == {
        "c": {"parent_tool_call_id": "c", "sub_session_id": "kid", "agent_type": "helper"}
    }


def test_settled(store: SessionStore, parent: str):
    before, kid = store.load_state(parent), store.load_state("kid")

    store.settle_child("kid", "completed", output={"answer": 42})

    now = store.load_state("kid")
    assert (now.status, now.output, now.version) == ("completed", {"answer": 42}, kid.version + 1)
    assert store.load_state(parent).version == before.version + 1
    [ref] = store.get_sub_session_refs(parent)
    assert (ref.status, ref.result) == ("completed", {"answer": 42})
    wait = (store.load_state(parent).suspended_awaiting_children or {})["c"]
    assert (wait["status"], wait["output"]) == ("completed", {"answer": 42})
    [event] = store.get_events(parent, types=["subagent_result"])
    assert event.data == {
        "sub_session_id": "kid",
        "status": "completed",
        "output": {"answer": 42},
        "parent_tool_call_id": "c",
    }
    rows = dump()
    store.settle_child("kid", "completed", output={"answer": 42})
    store.settle_child("kid", "failed", error="no, it failed")
    assert dump() == rows
    assert_invariants(parent)
    assert_invariants("kid")


def test_failed(store: SessionStore, parent: str):
    store.settle_child("kid", "failed", error="broke")
    assert (store.load_state("kid").status, store.load_state("kid").error) == ("failed", "broke")
    [ref] = store.get_sub_session_refs(parent)
    assert (ref.status, ref.result) == ("failed", {"error": "broke"})
    assert store.resume(parent).tool_messages == [error("c", "broke")]


def test_a_child_that_ended_by_itself_is_told_to_its_parent(store: SessionStore, parent: str):
    store.update_status("kid", "completed", output=7)
    kid = store.load_state("kid")
    store.settle_child("kid", "completed")
    assert store.load_state("kid") == kid
    assert store.resume(parent).tool_messages == [result("c", 7)]


def test_a_child_that_ended_before_its_parent_waits(store: SessionStore):
    """Nobody would tell the parent again: the wait is settled when it begins."""
    store.begin_turn("parent")
    child(store, "parent", "kid", "c")
    store.settle_child("kid", "completed", output=1)
    run = store.get_current_run("kid")
    assert run is not None
    store.update_run_status("kid", run.run_id, "completed")
    suspend(
        store,
        "parent",
        kind="awaiting_children",
        append_messages=[calling("c")],
        awaiting_children=[wait_for("c", "kid")],
    )
    assert store.resume("parent").tool_messages == [result("c", 1)]


def test_a_companion_is_consulted_again(store: SessionStore, parent: str):
    store.settle_child("kid", "completed", output=1)
    store.update_run_status("kid", store.list_runs("kid").items[0].run_id, "completed")
    store.resume(parent)
    turn = store.begin_turn("kid", message="and then?")
    assert turn.state.status == "active"
    suspend(
        store,
        parent,
        kind="awaiting_children",
        append_messages=[calling("d")],
        awaiting_children=[wait_for("d", "kid")],
    )
    store.settle_child("kid", "completed", output=2)
    assert store.resume(parent).tool_messages == [result("d", 2)]
    [ref] = store.get_sub_session_refs(parent)
    assert ref.result == 2


def test_a_child_that_is_elsewhere(store: SessionStore):
    """A remote sub-session has no row here; its reference tells how it ended."""
    store.begin_turn("parent")
    ref = {"sub_session_id": "far", "agent_type": "helper", "parent_tool_call_id": "c", "location": "remote"}
    store.add_sub_session_refs("parent", [ref])
    suspend(
        store,
        "parent",
        kind="awaiting_children",
        append_messages=[calling("c")],
        awaiting_children=[wait_for("c", "far")],
    )
    store.update_sub_session_ref("parent", "far", status="completed", result={"x": 1})
    assert store.resume("parent").tool_messages == [result("c", {"x": 1})]


@each(
    ("status", "options", "expected"),
    [
        ("active", {}, InvalidInput),
        ("completed", {"output": float("nan")}, InvalidDocument),
        ("failed", {"error": 1}, InvalidInput),
        ("completed", {"expected_version": 99}, StaleState),
    ],
)
def test_refusals(
    store: SessionStore, parent: str, status: str, options: dict[str, Any], expected: type[Exception]
):
    before = dump()
    with pytest.raises(expected):
        store.settle_child("kid", status, **options)
    with pytest.raises(SessionNotFound):
        store.settle_child("gone", "completed")
    assert dump() == before


def test_a_session_without_a_parent(store: SessionStore):
    store.begin_turn("s")
    store.settle_child("s", "completed", output=1)
    assert store.load_state("s").output == 1


class TestCascade:
    @pytest.fixture
    def tree(self, store: SessionStore) -> SessionStore:
        """A root that runs with children of every sort, one of them with a child of its own."""
        store.begin_turn("root", message="hello")
        child(store, "root", "awaited", "c1")
        child(store, "root", "running", "c2")
        child(store, "running", "below", "c3")
        child(store, "root", "companion", "c4", mode="persistent")
        child(store, "root", "waiting", "c5")
        suspend(store, "waiting", asked("x"))
        child(store, "root", "done", "c6")
        store.settle_child("done", "completed")
        store.update_run_status("done", store.list_runs("done").items[0].run_id, "completed")
        return store

    def test_running_ephemeral_children_are_failed(self, tree: SessionStore):
        store = tree
        suspend(
            store,
            "root",
            asked("a"),
            append_messages=[calling("a", "c1")],
            awaiting_children=[wait_for("c1", "awaited")],
        )
        keys = ["awaited", "running", "below", "companion", "waiting", "done"]
        states = {key: store.load_state(key) for key in keys}
        assert {key: state.status for key, state in states.items()} == {
            "awaited": "active",
            "running": "failed",
            "below": "failed",
            "companion": "active",
            "waiting": "active",
            "done": "completed",
        }
        assert states["running"].failure_reason == states["below"].failure_reason == "parent_suspended"
        assert store.get_current_run("running") is None
        assert store.list_runs("running").items[0].status == "failed"
        refs = {ref.sub_session_id: ref.status for ref in store.get_sub_session_refs("root")}
        assert (refs["running"], refs["companion"], refs["done"]) == ("failed", "active", "completed")
        for key in ["root", *keys]:
            assert_invariants(key)

    def test_they_come_back_on_resume(self, tree: SessionStore):
        store = tree
        suspend(store, "root", asked("a"))
        store.submit_tool_result("root", "a", result=1)
        answer = store.resume("root")
        assert {ref.sub_session_id for ref in answer.respawn} == {"running", "awaited"}
        refs = {ref.sub_session_id: ref for ref in store.get_sub_session_refs("root")}
        assert all(ref == refs[ref.sub_session_id] for ref in answer.respawn)
        for ref in answer.respawn:
            store.begin_turn(ref.sub_session_id, message="again")
        suspend(store, "root", asked("b"), awaiting_children=[wait_for("c1", "awaited")])
        assert store.load_state("awaited").status == "active"
        assert store.load_state("running").status == "failed"

    def test_a_child_that_was_failed_does_not_complete_after_all(self, tree: SessionStore):
        store = tree
        suspend(store, "root", asked("a"))
        before = dump()
        store.settle_child("running", "completed", output=1)
        assert dump() == before

    def test_a_circle_of_references_ends(self, store: SessionStore):
        store.begin_turn("root")
        child(store, "root", "kid", "c")
        back = {"sub_session_id": "root", "agent_type": "agent"}
        store.add_sub_session_refs("kid", [back, {**back, "sub_session_id": "gone"}])
        suspend(store, "root", asked("a"))
        assert store.load_state("root").status == "active"
        assert store.load_state("kid").status == "failed"


def test_deleting_a_tree_forgets_its_calls(store: SessionStore, parent: str):
    store.update_run_status("kid", store.list_runs("kid").items[0].run_id, "completed")
    store.begin_turn("kid")
    suspend(store, "kid", asked("a"))
    store.delete_session(parent)
    assert not any(rows for rows in dump().values())


def test_state_in_a_wait_of_the_callers_own(store: SessionStore):
    store.begin_turn("s", run_id="r")
    waits = {"c": {"sub_session_id": "x"}, "d": 1}
    store.save_state("s", replace(store.load_state("s"), suspended_awaiting_children=waits))
    assert store.load_state("s").suspended_awaiting_children == waits


def test_a_child_that_failed_by_itself_is_not_handed_back(store: SessionStore):
    store.begin_turn("root")
    child(store, "root", "broken", "c1")
    child(store, "root", "stopped", "c2")
    store.end_run("broken", store.list_runs("broken").items[0].run_id, "failed", error="broke")
    suspend(store, "root", asked("a"))
    store.submit_tool_result("root", "a", result=1)

    assert [ref.sub_session_id for ref in store.resume("root").respawn] == ["stopped"]


def test_a_child_whose_status_was_set_while_it_ran_has_ended(store: SessionStore) -> None:
    """Also for a parent that begins to wait for it afterwards; it keeps that status."""
    store.begin_turn("parent")
    child(store, "parent", "kid", "c")
    run_id = store.list_runs("kid").items[0].run_id
    store.update_status("kid", "failed", error="stopped by an operator")
    suspend(
        store,
        "parent",
        kind="awaiting_children",
        append_messages=[calling("c")],
        awaiting_children=[wait_for("c", "kid")],
    )
    store.end_run("kid", run_id, "completed", output=1)

    assert store.load_state("kid").status == "failed"
    assert len(store.get_events("parent", types=["subagent_result"])) == 1
    assert store.resume("parent").tool_messages == [error("c", "stopped by an operator")]


def test_a_child_that_reported_its_end_has_ended_before_its_run_is_closed(store: SessionStore) -> None:
    """It is neither waited for, nor failed with its parent and then executed again."""
    store.begin_turn("parent")
    for key, call_id in (("awaited", "c1"), ("other", "c2")):
        child(store, "parent", key, call_id)
        store.settle_child(key, "completed", output=key)
    suspend(
        store,
        "parent",
        kind="awaiting_children",
        append_messages=[calling("c1")],
        awaiting_children=[wait_for("c1", "awaited")],
    )

    assert [store.load_state(key).status for key in ("awaited", "other")] == ["completed"] * 2
    resumed = store.resume("parent")
    assert resumed.tool_messages == [result("c1", "awaited")]
    assert resumed.respawn == []


def test_below_another_parent_it_is_unknown(store: SessionStore, parent: str):
    store.create_session("other", agent_type="a")
    before = dump()
    with pytest.raises(SessionNotFound):
        store.settle_child("kid", "completed", parent_session_id="other")
    assert dump() == before
    store.settle_child("kid", "completed", parent_session_id=parent)
    assert store.load_state("kid").status == "completed"


def test_what_a_failed_child_says_comes_before_why_it_failed(store: SessionStore, parent: str) -> None:
    store.update_status("kid", "failed", error="The page is gone.", failure_reason="tool")
    store.settle_child("kid", "failed")
    assert store.resume(parent).tool_messages == [error("c", "The page is gone.")]


class TestSessionsOfOthers:
    """A reference may name any session, but only own children share the fate of their parent."""

    @pytest.fixture
    def victim(self, store: SessionStore, django_user_model: Any) -> str:
        """A session of another owner that runs, named as a child and as awaited."""
        ann, bob = (django_user_model.objects.create_user(name) for name in ("ann", "bob"))
        store.create_session("mine", agent_type="agent", owner=ann)
        store.create_session("victim", agent_type="agent", owner=bob)
        store.begin_turn("victim", message="hello")
        ref = {"sub_session_id": "victim", "agent_type": "helper", "parent_tool_call_id": "c"}
        store.add_sub_session_refs("mine", [ref])
        store.begin_turn("mine", message="hello")
        return "victim"

    def test_are_not_stopped(self, store: SessionStore, victim: str) -> None:
        before = store.load_state(victim)
        suspend(store, "mine", asked("d"))
        assert store.load_state(victim) == before, "when it is suspended"
        for status in ("failed", "active", "interrupted"):
            store.update_status("mine", status)
            assert store.load_state(victim) == before, status
        assert store.get_current_run(victim) is not None

    def test_are_not_seen(self, store: SessionStore, victim: str) -> None:
        store.update_status(victim, "completed", output="a secret")
        waits = {"append_messages": [calling("c")], "awaiting_children": [wait_for("c", victim)]}
        suspend(store, "mine", kind="awaiting_children", **waits)
        assert store.load_state("mine").suspended_awaiting_children == {
            "c": {"parent_tool_call_id": "c", "sub_session_id": victim, "agent_type": "helper"}
        }


ANSWER = {"role": "assistant", "content": "my last words"}


def said(store: SessionStore, *messages: dict[str, Any]) -> None:
    store.append_messages("kid", [ANSWER, *messages])


def completed(store: SessionStore, **fields: Any) -> None:
    said(store, {"role": "tool", "tool_call_id": "x", "content": "late"})
    store.update_status("kid", "completed", **fields)


def completed_with_output(store: SessionStore) -> None:
    completed(store, output=7)


def compared(store: SessionStore) -> None:
    said(store)
    assert store.compare_and_set_status("kid", ["active"], "completed")


def settled(store: SessionStore) -> None:
    said(store)
    store.settle_child("kid", "completed")


def recovered(store: SessionStore) -> None:
    said(store)
    store.recover_run("kid")


def ended(store: SessionStore) -> None:
    [run] = store.list_runs("kid").items
    store.end_run("kid", run.run_id, "completed", step_id="step", messages=[ANSWER])


def asked_since(store: SessionStore) -> None:
    said(store, {"role": "user", "content": "and?"})
    store.update_status("kid", "completed")


def given_more(store: SessionStore) -> None:
    said(store)
    store.admit_input("kid", "and?", resume=False)
    store.update_status("kid", "completed")


def said_with_a_prompt_in_the_inbox(store: SessionStore) -> None:
    store.admit_input("kid", "go", resume=False)
    said(store)
    store.update_status("kid", "completed")


@each(
    ("end", "expected"),
    [
        *((end, "my last words") for end in (completed, compared, settled, recovered, ended)),
        (said_with_a_prompt_in_the_inbox, "my last words"),
        (completed_with_output, 7),
        (asked_since, None),
        (given_more, None),
    ],
    ids=lambda row: row[0].__name__,
)
def test_what_a_child_said_last_is_its_result(
    store: SessionStore, parent: str, end: Callable[[SessionStore], None], expected: Any
) -> None:
    """However it is said to have completed, and unless it has an output, or was asked since."""
    end(store)
    assert store.load_state("kid").status == "completed"
    assert store.get_sub_session_refs(parent)[0].result == expected
    [message] = store.resume(parent).tool_messages
    assert message == result("c", expected)
    assert_invariants(parent)
    assert_invariants("kid")
