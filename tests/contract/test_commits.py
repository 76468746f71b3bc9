"""The step commit: state, staged writes, messages and checkpoint at once, and once only."""

from dataclasses import replace
from typing import Any

import pytest

from helix_sessions.exceptions import CommitConflict, InvalidWrites, ModeLocked, StaleState
from helix_sessions.store import SessionStore
from helix_sessions.types import CheckpointMeta, CommitResult
from tests.contract.calls import ASSISTANT, USER, WRITES
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db


def append(value: Any) -> list[dict[str, Any]]:
    return [{"op": "append", "path": ["items"], "values": [value]}]


class TestCommit:
    def test_everything_is_written(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "step-1", "call-1", append(1))
        state = replace(store.load_state(session), custom_state={"n": 1}, step_count=1, output="out")

        result = store.save_state_and_promote_staging(
            session,
            state,
            [USER, ASSISTANT],
            CheckpointMeta(step_id="step-1", run_id="run-1", metadata={"m": 1}),
            expected_version=state.version,
        )

        now = store.load_state(session)
        assert result == CommitResult(
            version=2,
            checkpoint_id=now.checkpoint_id,
            message_count=2,
            head_seq=now.head_seq,
            replayed=False,
        )
        assert now.version == 2
        assert now.custom_state == {"n": 1, "items": [1]}
        assert (now.step_count, now.output, now.message_count) == (1, "out", 2)
        assert store.get_messages(session).messages == [USER, ASSISTANT]
        assert store.get_staged_changes(session) == []
        checkpoint = store.get_latest_checkpoint(session)
        assert checkpoint is not None
        assert checkpoint.checkpoint_id == result.checkpoint_id
        assert (checkpoint.source, checkpoint.step_count, checkpoint.message_count) == ("staging", 1, 2)
        assert (checkpoint.step_id, checkpoint.run_id, checkpoint.metadata) == ("step-1", "run-1", {"m": 1})
        assert checkpoint.state == now
        assert_invariants(session)

    def test_the_order_of_the_log(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "step", "call", WRITES)
        store.save_state_and_promote_staging(session, store.load_state(session), [USER])
        types = [event.type for event in store.get_events(session, 2)]
        assert set(types) == {"user_message", "staging_promoted", "state_saved", "checkpoint_created"}
        assert types[-1] == "checkpoint_created"

    def test_the_least_of_it(self, store: SessionStore, session: str) -> None:
        result = store.save_state_and_promote_staging(session, store.load_state(session))
        assert (result.version, result.message_count, result.replayed) == (2, 0, False)
        checkpoint = store.get_latest_checkpoint(session)
        assert checkpoint is not None
        assert checkpoint.source == "save"

    def test_a_dict_does_for_the_meta(self, store: SessionStore, session: str) -> None:
        state = store.load_state(session)
        meta = {"checkpoint_id": "c", "step_id": "s", "run_id": "r", "metadata": {"a": 1}}
        assert store.save_state_and_promote_staging(session, state, (), meta).checkpoint_id == "c"
        checkpoint = store.get_checkpoint(session, "c")
        assert (checkpoint.step_id, checkpoint.run_id, checkpoint.metadata) == ("s", "r", {"a": 1})

    def test_the_run_under_way_is_noted_unless_given(self, store: SessionStore, session: str) -> None:
        store.create_run(session, run_id="running")
        store.save_state_and_promote_staging(session, store.load_state(session))
        checkpoint = store.get_latest_checkpoint(session)
        assert checkpoint is not None
        assert checkpoint.run_id == "running"

    def test_another_mode_is_refused(self, store: SessionStore, session: str) -> None:
        before = dump()
        with pytest.raises(ModeLocked):
            store.save_state_and_promote_staging(
                session, replace(store.load_state(session), mode="persistent"), [USER]
            )
        assert dump() == before


class TestStaging:
    def test_only_the_steps_own_changes(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "one", "call", append(1))
        store.stage_changes(session, "two", "call", append(2))
        state = store.load_state(session)
        store.save_state_and_promote_staging(session, state, (), {"step_id": "two"})
        assert store.load_state(session).custom_state == {"items": [2]}
        assert [change.step_id for change in store.get_staged_changes(session)] == ["one"]
        assert_invariants(session)

    def test_every_steps_changes_when_none_is_named(self, store: SessionStore, session: str) -> None:
        for number, (step, call) in enumerate([("b", "2"), ("a", "1"), ("b", "1")]):
            store.stage_changes(session, step, call, append(number))
        store.save_state_and_promote_staging(session, store.load_state(session))
        assert store.load_state(session).custom_state == {"items": [0, 1, 2]}
        assert store.has_staged_changes(session) is False

    def test_they_go_on_top_of_the_state_given_not_of_the_one_stored(
        self, store: SessionStore, session: str
    ) -> None:
        store.merge_custom_state(session, append("stored"))
        store.stage_changes(session, "step", "call", append("staged"))
        state = replace(store.load_state(session), custom_state={"items": ["given"]})
        store.save_state_and_promote_staging(session, state)
        assert store.load_state(session).custom_state == {"items": ["given", "staged"]}
        assert state.custom_state == {"items": ["given"]}

    def test_staging_of_another_step_is_source_save(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "one", "call", append(1))
        store.save_state_and_promote_staging(session, store.load_state(session), (), {"step_id": "two"})
        assert store.load_state(session).checkpoint_source == "save"

    def test_staged_writes_that_do_not_fit_refuse_the_commit(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "step", "call", append(1))
        state = replace(store.load_state(session), custom_state={"items": "text"})
        before = dump()
        with pytest.raises(InvalidWrites):
            store.save_state_and_promote_staging(session, state, [USER])
        assert dump() == before


class TestStale:
    def test_nothing_changes(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "step", "call", WRITES)
        state = replace(store.load_state(session), custom_state={"mine": 1}, step_count=9)
        store.append_messages(session, [USER])
        before = dump()
        with pytest.raises(StaleState) as caught:
            store.save_state_and_promote_staging(
                session, state, [ASSISTANT], {"checkpoint_id": "c"}, expected_version=state.version
            )
        assert caught.value.current_version == 2
        assert dump() == before

    def test_the_state_s_own_version_is_not_checked(self, store: SessionStore, session: str) -> None:
        state = store.load_state(session)
        store.append_messages(session, [USER])
        assert store.save_state_and_promote_staging(session, state).version == 3


class TestReplay:
    META = CheckpointMeta(checkpoint_id="c", step_id="step")

    def commit(self, store: SessionStore, session: str, **changes: Any) -> CommitResult:
        arguments: dict[str, Any] = {
            "state": replace(store.load_state(session), custom_state={"n": 1}, step_count=1),
            "append_messages": [USER],
            "checkpoint_meta": self.META,
        } | changes
        return store.save_state_and_promote_staging(session, **arguments)

    def test_the_first_result_comes_again(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "step", "call", WRITES)
        first = self.commit(store, session)
        before = dump()
        assert self.commit(store, session) == replace(first, replayed=True)
        assert dump() == before

    def test_however_much_later_and_whatever_the_version(self, store: SessionStore, session: str) -> None:
        first = self.commit(store, session, expected_version=1)
        store.append_messages(session, [USER, USER])
        store.truncate_messages(session, 0)
        store.save_state_and_promote_staging(session, store.load_state(session))
        store.update_status(session, "completed")
        state = replace(store.load_state(session), status="active", custom_state={"n": 1}, step_count=1)
        before = dump()
        again = self.commit(store, session, state=state, expected_version=1)
        assert again == replace(first, replayed=True)
        assert dump() == before

    def test_what_is_staged_meanwhile_stays_staged(self, store: SessionStore, session: str) -> None:
        self.commit(store, session)
        store.stage_changes(session, "step", "late", WRITES)
        assert self.commit(store, session).replayed
        assert store.has_staged_changes(session, "step")

    @each(
        "changes",
        [
            {"append_messages": []},
            {"append_messages": [USER, USER]},
            {"append_messages": [ASSISTANT]},
            {"append_messages": [{**USER, "content": "other"}]},
            {"checkpoint_meta": CheckpointMeta(checkpoint_id="c")},
            {"checkpoint_meta": CheckpointMeta(checkpoint_id="c", step_id="other")},
        ],
    )
    def test_other_content_is_a_conflict(
        self, store: SessionStore, session: str, changes: dict[str, Any]
    ) -> None:
        self.commit(store, session)
        before = dump()
        with pytest.raises(CommitConflict):
            self.commit(store, session, **changes)
        assert dump() == before

    @each(
        "changes",
        [
            {"custom_state": {"n": 2}},
            {"step_count": 2},
            {"status": "paused"},
            {"output": 1},
            {"error": "x"},
            {"tags": ("x",)},
            {"metadata": {"a": 1}},
            {"pending_client_tool_calls": {}},
            {"user_id": "u"},
        ],
    )
    def test_another_owned_state_is_a_conflict(
        self, store: SessionStore, session: str, changes: dict[str, Any]
    ) -> None:
        self.commit(store, session)
        state = replace(store.load_state(session), **changes)
        before = dump()
        with pytest.raises(CommitConflict):
            self.commit(store, session, state=state)
        assert dump() == before

    def test_what_the_caller_does_not_own_is_no_conflict(self, store: SessionStore, session: str) -> None:
        state = replace(store.load_state(session), custom_state={"n": 1})
        first = self.commit(store, session, state=state)
        state = replace(state, version=99, head_seq=99, resume_count=5, checkpoint_id="x")
        assert self.commit(store, session, state=state) == replace(first, replayed=True)

    def test_other_metadata_or_run_is_no_conflict(self, store: SessionStore, session: str) -> None:
        first = self.commit(store, session)
        meta = replace(self.META, metadata={"retry": 2}, run_id="r")
        assert self.commit(store, session, checkpoint_meta=meta) == replace(first, replayed=True)

    def test_another_call_under_the_same_id_is_a_conflict(self, store: SessionStore, session: str) -> None:
        self.commit(store, session)
        store.stage_changes(session, "step", "call", WRITES)
        before = dump()
        with pytest.raises(CommitConflict):
            store.create_checkpoint(session, self.META)
        with pytest.raises(CommitConflict):
            store.promote_staging(session, "step", self.META)
        assert dump() == before

    def test_the_id_of_a_saved_state_is_taken(self, store: SessionStore, session: str) -> None:
        saved = store.save_state(session, store.load_state(session))
        with pytest.raises(CommitConflict):
            self.commit(store, session, checkpoint_meta={"checkpoint_id": saved.checkpoint_id})

    def test_another_session_may_use_the_same_id(self, store: SessionStore, session: str) -> None:
        store.create_session("other", agent_type="writer")
        self.commit(store, session)
        assert self.commit(store, "other").replayed is False

    def test_a_refused_commit_does_not_take_its_id(self, store: SessionStore, session: str) -> None:
        with pytest.raises(StaleState):
            self.commit(store, session, expected_version=99)
        assert self.commit(store, session).replayed is False
