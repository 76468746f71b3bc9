"""The ends of what a driver does: a step opened, a run ended with its session."""

from typing import Any

import pytest

from helix_sessions.exceptions import Fenced, InvalidInput, InvalidWrites, RunNotFound
from helix_sessions.store import SessionStore
from tests.contract.suspended import calling, child, suspend, wait_for
from tests.invariants import assert_invariants, dump

pytestmark = pytest.mark.django_db(transaction=True)

ANSWER = {"role": "assistant", "content": "bye"}


def appended(what: str) -> list[Any]:
    return [{"op": "append", "path": ["done"], "values": [what]}]


@pytest.fixture
def run_id(store: SessionStore) -> str:
    """A run of `s` with something staged for two steps."""
    store.begin_turn("s", message="hello", run_id="r")
    store.stage_changes("s", "step", "c1", appended("c1"))
    store.stage_changes("s", "other", "c2", appended("c2"))
    return "r"


class TestOpenStep:
    def test_it_appends_and_stages_in_one_write(self, store: SessionStore, run_id: str) -> None:
        before = store.load_state("s")
        made = store.open_step("s", "next", calling("c3"), run_id=run_id, writes=appended("next"))
        assert (made.first_position, made.message_count) == (1, 2)
        assert (made.version, made.head_seq) == (before.version + 1, before.head_seq + 1)
        [event] = store.get_events("s", made.head_seq)
        assert (event.type, event.run_id, event.turn_id) == ("assistant_message", run_id, "next")
        [staged] = store.get_staged_changes("s", "next")
        assert (staged.tool_call_id, staged.writes) == ("next", appended("next"))
        assert [change.step_id for change in store.get_staged_changes("s")] == ["step", "other", "next"]
        assert_invariants("s")

    def test_without_writes_nothing_is_staged(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello", run_id="r")
        store.open_step("s", "next", calling("c1"), run_id="r")
        assert not store.has_staged_changes("s")


class TestEndRun:
    def test_with_its_last_step(self, store: SessionStore, run_id: str) -> None:
        before = store.load_state("s")
        run = store.end_run(
            *("s", run_id, "completed"),
            step_id="step",
            messages=[ANSWER],
            writes=appended("last"),
            step_count=3,
            output={"o": 1},
            usage={"tokens": 2},
        )
        assert (run.status, run.step_count, run.output, run.usage) == (
            "completed",
            3,
            {"o": 1},
            {"tokens": 2},
        )
        assert run == store.get_run("s", run_id)
        state = store.load_state("s")
        assert (state.status, state.output, state.version) == ("completed", {"o": 1}, before.version + 1)
        assert (state.custom_state, state.step_count) == ({"done": ["c1", "last"]}, before.step_count + 1)
        checkpoint = store.get_latest_checkpoint("s")
        assert checkpoint is not None
        assert (checkpoint.run_id, checkpoint.step_id, checkpoint.source) == (run_id, "step", "staging")
        assert (checkpoint.status, checkpoint.message_count) == ("completed", 2)
        assert [change.step_id for change in store.get_staged_changes("s")] == ["other"]
        assert_invariants("s")

    def test_without_a_step_nothing_is_promoted_and_no_checkpoint_made(
        self, store: SessionStore, run_id: str
    ) -> None:
        run = store.end_run("s", run_id, "failed", error="broken", failure_reason="why")
        state = store.load_state("s")
        assert (run.status, run.error) == ("failed", "broken")
        assert (state.status, state.error, state.failure_reason) == ("failed", "broken", "why")
        assert store.get_latest_checkpoint("s") is None
        assert len(store.get_staged_changes("s")) == 2
        assert_invariants("s")

    def test_what_a_step_staged_can_be_forgotten(self, store: SessionStore, run_id: str) -> None:
        store.end_run("s", run_id, "failed", step_id="step", messages=[ANSWER], discard=True)
        assert store.load_state("s").custom_state == {}
        assert [change.step_id for change in store.get_staged_changes("s")] == ["other"]
        assert store.get_message_count("s") == 2
        assert_invariants("s")

    def test_writes_that_cannot_be_applied_end_nothing(self, store: SessionStore, run_id: str) -> None:
        store.merge_custom_state("s", [{"op": "set", "path": ["done"], "value": "x"}])
        before = dump()
        for step in ("step", "of nothing staged"):
            with pytest.raises(InvalidWrites):
                store.end_run(
                    *("s", run_id, "completed"), step_id=step, messages=[ANSWER], writes=appended("x")
                )
            assert dump() == before

    def test_an_interruption_takes_the_request(self, store: SessionStore, run_id: str) -> None:
        store.set_interrupt_flag("s", "enough")
        store.end_run("s", run_id, "interrupted")
        state = store.load_state("s")
        assert (state.status, state.interrupt_context) == ("interrupted", {"reason": "enough"})
        assert store.peek_interrupt_flag("s") is None

    def test_another_end_takes_it_too(self, store: SessionStore, run_id: str) -> None:
        store.set_interrupt_flag("s", "enough")
        store.end_run("s", run_id, "completed")
        assert store.peek_interrupt_flag("s") is None, "a session that has ended is not asked to stop"

    def test_what_somebody_else_decided_holds(self, store: SessionStore, run_id: str) -> None:
        store.update_status("s", "paused")
        assert store.end_run("s", run_id, "completed", output=1).status == "interrupted"
        state = store.load_state("s")
        assert (state.status, state.output) == ("paused", None)

    def test_a_run_that_somebody_else_has_ended_stays_as_it_is(
        self, store: SessionStore, run_id: str
    ) -> None:
        store.update_run_status("s", run_id, "failed", error="by somebody")
        store.begin_turn("s", run_id="another")
        run = store.end_run("s", run_id, "completed", step_id="step", messages=[ANSWER])
        assert (run.status, run.error) == ("failed", "by somebody")
        assert store.load_state("s").status == "active"
        current = store.get_current_run("s")
        assert current is not None
        assert current.run_id == "another"
        assert store.get_message_count("s") == 2, "what was said is kept"
        assert_invariants("s")

    def test_a_parent_that_waits_is_told(self, store: SessionStore) -> None:
        store.begin_turn("parent", message="hello")
        child(store, "parent", "s", "c1")
        waits = {"kind": "awaiting_children", "append_messages": [calling("c1")]}
        suspend(store, "parent", awaiting_children=[wait_for("c1", "s")], **waits)
        run = store.get_current_run("s")
        assert run is not None
        store.end_run("s", run.run_id, "completed", output="found")
        [ref] = store.get_sub_session_refs("parent")
        assert (ref.status, ref.result) == ("completed", "found")
        store.settle_child("s", "completed")
        assert len(store.get_events("parent", types=["subagent_result"])) == 1
        assert [message["content"] for message in store.resume("parent").tool_messages] == ["found"]
        assert_invariants("parent")

    def test_of_an_interruption_it_is_not_told(self, store: SessionStore) -> None:
        store.begin_turn("parent", message="hello")
        child(store, "parent", "s", "c1")
        run = store.get_current_run("s")
        assert run is not None
        store.end_run("s", run.run_id, "interrupted")
        assert [ref.status for ref in store.get_sub_session_refs("parent")] == ["active"]

    def test_a_parent_that_has_no_reference_is_not_told(self, store: SessionStore) -> None:
        """As with a fork, whose parent is what it was forked from."""
        store.create_session("parent", agent_type="a")
        store.create_session("s", agent_type="a", parent_session_id="parent")
        before = store.load_state("parent")
        store.begin_turn("s", run_id="r")
        store.end_run("s", "r", "completed")
        assert store.load_state("parent") == before

    def test_who_may_and_what(self, store: SessionStore, run_id: str) -> None:
        lost = store.acquire_lease("s", "first", 0)
        store.acquire_lease("s", "second", 30)
        before = dump()
        with pytest.raises(Fenced):
            store.fenced(lost).end_run("s", run_id, "completed")
        with pytest.raises(Fenced):
            store.fenced(lost).open_step("s", "next", ANSWER, run_id=run_id)
        with pytest.raises(RunNotFound):
            store.end_run("s", "unknown", "completed")
        for status in ("running", "suspended_client_tool", "paused"):
            with pytest.raises(InvalidInput):
                store.end_run("s", run_id, status)
        assert dump() == before
