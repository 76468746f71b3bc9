"""What becomes of a run whose owner is gone: decided and done in one write."""

from dataclasses import replace
from typing import Any

import pytest

from helix_sessions.content import documents
from helix_sessions.exceptions import Fenced, InvalidInput, SessionNotFound
from helix_sessions.store import SessionStore
from helix_sessions.store.calls import children
from helix_sessions.types import Recovery
from tests.contract.suspended import asked, calling, child, messages, suspend, wait_for
from tests.invariants import assert_invariants, assert_valid_transcript, dump

pytestmark = pytest.mark.django_db(transaction=True)


def recovered(store: SessionStore, policy: str = "wake") -> Recovery:
    """Recover `s`, in one version, and find nothing to recover but what is said to go on."""
    before = store.load_state("s").version
    recovery = store.recover_run("s", policy, run_id="next")
    assert recovery is not None
    state = store.load_state("s")
    assert state.version == before + 1, "it was not one write"
    assert recovery.status == state.status
    assert store.get_current_run("s") == recovery.run
    assert store.get_run("s", recovery.ended.run_id) == recovery.ended
    assert recovery.ended.status != "running"
    assert not store.has_staged_changes("s")
    assert_invariants("s")
    return recovery


def say(store: SessionStore, *said: dict[str, Any]) -> None:
    store.append_messages("s", list(said))


def stage(store: SessionStore, step: str, call: str, *, logged: str | None = None) -> None:
    """A tool has staged what it does, and perhaps said how it ended."""
    data = {"tool_call_id": call, "tool_name": f"tool_{call}"}
    store.emit_event("s", "tool_called", data)
    store.stage_changes("s", step, call, [{"op": "append", "path": ["done"], "values": [call]}])
    if logged is not None:
        store.emit_event("s", logged, {**data, "result": call, "error": "broken"})


ANSWER = {"role": "assistant", "content": "bye"}


class TestWhatIsLeftToDo:
    def test_no_run_was_left(self, store: SessionStore, session: str) -> None:
        before = dump()
        assert store.recover_run(session) is None
        assert store.recover_run(session, "fail") is None
        assert dump() == before

    def test_a_model_that_was_told_something_owes_an_answer(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello", run_id="first")
        recovery = recovered(store)
        assert recovery.run is not None
        assert (recovery.run.run_id, recovery.run.metadata) == ("next", {"recovers": "first"})
        assert (recovery.ended.status, recovery.status) == ("interrupted", "active")
        types = [event.type for event in store.get_events("s")]
        assert types[-3:] == ["run_finished", "session_woken", "run_started"]

    def test_so_does_one_whose_call_was_left_open(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello")
        say(store, calling("c1"))
        assert recovered(store).run is not None
        assert_valid_transcript("s")
        assert messages(store, "s")[-1]["is_error"] is True

    def test_and_one_whose_context_was_told_something_since(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello")
        say(store, {"role": "system", "content": "It is noon."})
        assert recovered(store).run is not None

    def test_the_last_word_was_said(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello")
        say(store, ANSWER, {"role": "system", "content": "It is noon."})
        recovery = recovered(store)
        assert (recovery.run, recovery.ended.status, recovery.status) == (None, "completed", "completed")

    def test_the_last_word_was_said_and_there_are_inputs(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello")
        say(store, ANSWER)
        store.admit_input("s", "more")
        recovery = recovered(store)
        assert (recovery.run, recovery.ended.status, recovery.status) == (None, "interrupted", "active")

    def test_a_run_that_was_asked_for_and_said_nothing(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello", run_id="first")
        say(store, ANSWER)
        store.update_run_status("s", "first", "completed")
        store.begin_turn("s", run_id="second")
        assert recovered(store).run is not None

    def test_a_run_that_was_opened_for_an_input_which_is_still_there(self, store: SessionStore) -> None:
        """What the run before it left unanswered is not asked again."""
        store.begin_turn("s", message="hello", run_id="first")
        store.update_run_status("s", "first", "failed")
        store.admit_input("s", "more", delivery="queue")
        store.begin_turn("s")
        recovery = recovered(store)
        assert (recovery.run, recovery.status) == (None, "active")

    def test_a_run_that_was_opened_for_an_input_which_was_taken_back(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="a")
        store.admit_input("s", "more", input_id="i")
        store.begin_turn("s")
        store.cancel_input("s", "i")
        recovery = recovered(store)
        assert (recovery.run, recovery.status) == (None, "completed")

    def test_a_recovery_that_was_cut_off_is_recovered(self, store: SessionStore) -> None:
        """With an input pending, which must not come before what is owed."""
        store.begin_turn("s", message="hello")
        store.admit_input("s", "more", delivery="queue")
        assert recovered(store).run is not None
        again = store.recover_run("s", run_id="third")
        assert again is not None
        assert again.run is not None
        assert again.run.metadata == {"recovers": "next"}

    def test_a_session_that_waits_goes_on_waiting(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello")
        suspend(store, "s", asked("c1"))
        store.create_run("s")
        recovery = recovered(store)
        assert (recovery.run, recovery.status) == (None, "active")
        assert_valid_transcript("s", waiting=["c1"])

    @pytest.mark.parametrize("policy", ["wake", "fail"])
    def test_what_somebody_else_decided_holds(self, store: SessionStore, policy: str) -> None:
        for status in ("completed", "failed", "paused", "interrupted"):
            store.begin_turn("s", message="hello")
            store.save_state("s", replace(store.load_state("s"), status=status))
            recovery = recovered_anew(store, policy)
            assert (recovery.run, recovery.status) == (None, status)

    def test_a_request_to_stop_is_met(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello")
        store.admit_input("s", "before", delivery="queue")
        store.set_interrupt_flag("s", "enough")
        later = store.admit_input("s", "after", delivery="queue")
        recovery = recovered(store)
        assert (recovery.run, recovery.ended.status, recovery.status) == (None, "interrupted", "interrupted")
        state = store.load_state("s")
        assert state.interrupt_context == {"reason": "enough"}
        assert store.peek_interrupt_flag("s") is None
        assert [summary.session_id for summary in store.list_unattended()] == ["s"], "what came later is new"
        store.cancel_input("s", later.input_id)
        assert store.list_unattended() == []

    def test_fail(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello")
        say(store, calling("c1"))
        store.set_interrupt_flag("s")
        recovery = recovered(store, "fail")
        assert (recovery.run, recovery.ended.status, recovery.status) == (None, "failed", "failed")
        state = store.load_state("s")
        assert (state.failure_reason, state.error) == ("owner_lost", recovery.ended.error)
        assert state.error
        assert_valid_transcript("s")

    @pytest.mark.parametrize("policy", ["wake", "fail"])
    def test_a_parent_is_told_how_its_child_ended(self, store: SessionStore, policy: str) -> None:
        store.begin_turn("parent", message="hello")
        child(store, "parent", "s", "c1")
        waits = {"kind": "awaiting_children", "append_messages": [calling("c1")]}
        suspend(store, "parent", awaiting_children=[wait_for("c1", "s")], **waits)
        say(store, ANSWER)
        recovered(store, policy)
        ended = "completed" if policy == "wake" else "failed"
        assert [ref.status for ref in store.get_sub_session_refs("parent")] == [ended]
        assert store.resume("parent").tool_messages[0].get("is_error", False) is (policy == "fail")


def recovered_anew(store: SessionStore, policy: str) -> Recovery:
    recovery = store.recover_run("s", policy)
    assert recovery is not None
    assert_invariants("s")
    return recovery


class TestStaging:
    def test_writes_of_tools_whose_result_was_logged_are_promoted_and_no_others(
        self, store: SessionStore
    ) -> None:
        run = store.begin_turn("s", message="hello").run
        say(store, calling("c1", "c2", "c3", "c4"))
        stage(store, "step", "c1", logged="tool_responded")
        stage(store, "step", "c2")
        stage(store, "step", "c3", logged="tool_error")
        stage(store, "step", "c4", logged="tool_responded")
        recovered(store)
        assert store.load_state("s").custom_state == {"done": ["c1", "c4"]}
        checkpoint = store.get_latest_checkpoint("s")
        assert checkpoint is not None
        assert (checkpoint.run_id, checkpoint.step_id, checkpoint.source) == (run.run_id, "step", "staging")
        assert checkpoint.state.custom_state == {"done": ["c1", "c4"]}

    def test_an_id_that_comes_again_is_another_call(self, store: SessionStore) -> None:
        """The result of the first is not that of the second."""
        store.begin_turn("s", message="hello")
        say(store, calling("c1"))
        stage(store, "one", "c1", logged="tool_responded")
        state = store.load_state("s")
        result = {"role": "tool", "tool_call_id": "c1", "content": 1}
        store.save_state_and_promote_staging("s", state, [result], {"step_id": "one"})
        say(store, calling("c1"))
        stage(store, "two", "c1")
        recovered(store)
        assert store.load_state("s").custom_state == {"done": ["c1"]}

    def test_a_result_in_the_transcript_counts_unless_it_is_an_error(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello")
        say(store, calling("c1", "c2"))
        stage(store, "step", "c1")
        stage(store, "step", "c2")
        say(
            store,
            {"role": "tool", "tool_call_id": "c1", "content": 1},
            {"role": "tool", "tool_call_id": "c2", "content": 1, "is_error": True},
        )
        recovered(store)
        assert store.load_state("s").custom_state == {"done": ["c1"]}

    def test_the_writes_of_a_turn_go_with_its_message(self, store: SessionStore) -> None:
        run = store.begin_turn("s", message="hello").run
        writes = [{"op": "set", "path": ["said"], "value": True}]
        store.open_step("s", "said", calling("c1"), run_id=run.run_id, writes=writes)
        store.stage_changes("s", "unsaid", "unsaid", [{"op": "set", "path": ["unsaid"], "value": True}])
        recovered(store)
        assert store.load_state("s").custom_state == {"said": True}

    def test_writes_that_cannot_be_applied_are_forgotten_with_those_of_their_step(
        self, store: SessionStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.begin_turn("s", message="hello", custom_state={"text": "x"})
        say(store, calling("c1", "c2", "c3", "c4"))
        stage(store, "one", "c1", logged="tool_responded")
        stage(store, "two", "c2", logged="tool_responded")
        store.stage_changes("s", "two", "c3", [{"op": "append", "path": ["text"], "values": [1]}])
        store.emit_event("s", "tool_responded", {"tool_call_id": "c3"})
        deep: Any = 1
        for _ in range(30):
            deep = [deep]
        store.stage_changes("s", "three", "c4", [{"op": "set", "path": ["deep"], "value": deep}])
        store.emit_event("s", "tool_responded", {"tool_call_id": "c4"})
        monkeypatch.setattr(documents, "MAX_DEPTH", 20)
        recovered(store)
        assert store.load_state("s").custom_state == {"text": "x", "done": ["c1"]}


class TestWhoMay:
    def test_an_owner_that_lost_the_session(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello")
        lost = store.acquire_lease("s", "first", 0)
        store.acquire_lease("s", "second", 30)
        before = dump()
        with pytest.raises(Fenced):
            store.fenced(lost).recover_run("s")
        assert dump() == before

    def test_arguments(self, store: SessionStore, session: str) -> None:
        with pytest.raises(SessionNotFound):
            store.recover_run("unknown")
        for arguments in (("leave",), (None,)):
            with pytest.raises(InvalidInput):
                store.recover_run(session, *arguments)
        with pytest.raises(InvalidInput):
            store.recover_run(session, run_id="")


def test_an_input_that_was_taken_back_before_the_last_run_ended_says_nothing_of_the_next(
    store: SessionStore,
) -> None:
    store.begin_turn("s", message="hello", run_id="first")
    store.admit_input("s", "more", input_id="i")
    store.cancel_input("s", "i")
    say(store, ANSWER)
    store.update_run_status("s", "first", "completed")
    store.begin_turn("s", run_id="second")

    assert recovered(store).run is not None


@pytest.mark.parametrize("size", [10, 20_000], ids=["small", "large"])
def test_what_the_tools_of_several_steps_staged_is_in_the_state(store: SessionStore, size: int) -> None:
    """Also where a large document is stored as the writes that change it."""
    store.begin_turn("s", message="hello", custom_state={"text": "x" * size, "done": []})
    store.create_checkpoint("s")
    for step, call in (("one", "c1"), ("two", "c2")):
        say(store, calling(call))
        stage(store, step, call, logged="tool_responded")
    recovered(store)

    assert store.load_state("s").custom_state == {"text": "x" * size, "done": ["c1", "c2"]}


def test_a_run_that_ended_before_it_could_be_recovered(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.begin_turn("s", message="hello", run_id="first")
    lock = children.lock_with_parent

    def late(*args: Any) -> Any:
        store.update_run_status("s", "first", "completed")
        return lock(*args)

    monkeypatch.setattr(children, "lock_with_parent", late)

    assert store.recover_run("s") is None
    assert store.get_run("s", "first").status == "completed"
