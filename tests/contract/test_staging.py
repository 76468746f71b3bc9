"""Staging."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import CommitConflict, InvalidWrites, SessionNotFound
from helix_sessions.models import StagedChange as StagedRow
from helix_sessions.store import SessionStore
from helix_sessions.types import CommitResult
from tests.contract.calls import WRITES
from tests.invariants import assert_invariants, dump

pytestmark = pytest.mark.django_db


def append(value: Any) -> list[dict[str, Any]]:
    return [{"op": "append", "path": ["items"], "values": [value]}]


def staged(store: SessionStore, session: str, step_id: str | None = None) -> list[Any]:
    changes = store.get_staged_changes(session, step_id)
    return [(change.step_id, change.tool_call_id, change.writes[0]["values"][0]) for change in changes]


class TestStage:
    def test_a_change_waits_in_its_place(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "b", "2", append(1))
        store.stage_changes(session, "a", "1", append(2))
        store.stage_changes(session, "b", "1", append(3))
        assert staged(store, session) == [("b", "2", 1), ("a", "1", 2), ("b", "1", 3)]
        assert staged(store, session, "b") == [("b", "2", 1), ("b", "1", 3)]
        assert staged(store, session, "unknown") == []
        assert store.load_state(session).custom_state == {}
        assert_invariants(session)

    def test_the_same_step_and_call_replaces_in_the_old_place(
        self, store: SessionStore, session: str
    ) -> None:
        store.stage_changes(session, "step", "1", append("old"))
        store.stage_changes(session, "step", "2", append("other"))
        store.stage_changes(session, "step", "1", append("new"))
        assert staged(store, session) == [("step", "1", "new"), ("step", "2", "other")]
        assert_invariants(session)

    def test_a_place_is_not_given_twice(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "one", "1", append(1))
        store.stage_changes(session, "two", "1", append(2))
        store.discard_staging(session, "one")
        store.stage_changes(session, "three", "1", append(3))
        assert staged(store, session) == [("two", "1", 2), ("three", "1", 3)]

    def test_what_is_staged_says_when(self, store: SessionStore, session: str) -> None:
        before = timezone.now()
        change = store.stage_changes(session, "step", "call", WRITES)
        assert store.get_staged_changes(session) == [change]
        assert before <= change.staged_at <= timezone.now()
        assert change.writes == WRITES

    def test_json_patches_are_staged_as_writes(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "step", "call", [{"op": "add", "path": "/items/-", "value": 1}])
        assert staged(store, session) == [("step", "call", 1)]

    def test_malformed_writes_are_refused_at_once(self, store: SessionStore, session: str) -> None:
        before = dump()
        with pytest.raises(InvalidWrites):
            store.stage_changes(session, "step", "call", [{"op": "move", "path": "/a", "from": "/b"}])
        assert dump() == before

    def test_whether_anything_is_staged(self, store: SessionStore, session: str) -> None:
        assert store.has_staged_changes(session) is False
        store.stage_changes(session, "step", "call", WRITES)
        assert store.has_staged_changes(session) is True
        assert store.has_staged_changes(session, "step") is True
        assert store.has_staged_changes(session, "other") is False


class TestPromote:
    def test_the_stored_state_takes_the_step_s_writes_in_order(
        self, store: SessionStore, session: str
    ) -> None:
        store.merge_custom_state(session, append("stored"))
        store.stage_changes(session, "one", "2", append(1))
        store.stage_changes(session, "two", "1", append("other step"))
        store.stage_changes(session, "one", "1", append(2))

        result = store.promote_staging(session, "one", {"metadata": {"m": 1}})

        now = store.load_state(session)
        assert now.custom_state == {"items": ["stored", 1, 2]}
        assert result == CommitResult(
            version=3, checkpoint_id=now.checkpoint_id, message_count=0, head_seq=now.head_seq
        )
        assert staged(store, session) == [("two", "1", "other step")]
        checkpoint = store.get_latest_checkpoint(session)
        assert checkpoint is not None
        assert (checkpoint.source, checkpoint.step_id) == ("staging", "one")
        assert (checkpoint.metadata, checkpoint.state) == ({"m": 1}, now)
        assert_invariants(session)

    def test_nothing_staged_says_where_it_stands(self, store: SessionStore, session: str) -> None:
        saved = store.save_state(session, store.load_state(session))
        assert store.promote_staging(session, "step") == CommitResult(
            version=saved.version,
            checkpoint_id=saved.checkpoint_id,
            message_count=0,
            head_seq=saved.head_seq,
            replayed=False,
        )

    def test_the_event_names_the_calls(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "step", "call", WRITES)
        store.promote_staging(session, "step")
        [event] = store.get_events(session, types=["staging_promoted"])
        assert event.data["changes"] == [{"step_id": "step", "tool_call_id": "call"}]

    def test_repeated_it_returns_the_first_result(self, store: SessionStore, session: str) -> None:
        meta = {"checkpoint_id": "c"}
        store.stage_changes(session, "step", "call", append(1))
        first = store.promote_staging(session, "step", meta)
        store.stage_changes(session, "step", "call", append(2))
        before = dump()
        again = store.promote_staging(session, "step", meta, expected_version=1)
        assert again == replace(first, replayed=True)
        assert dump() == before

    def test_another_step_under_the_same_id_is_a_conflict(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "one", "call", append(1))
        store.stage_changes(session, "two", "call", append(2))
        store.promote_staging(session, "one", {"checkpoint_id": "c"})
        before = dump()
        with pytest.raises(CommitConflict):
            store.promote_staging(session, "two", {"checkpoint_id": "c"})
        assert dump() == before

    def test_writes_that_do_not_fit_change_nothing(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "step", "1", append(1))
        store.stage_changes(session, "step", "2", [{"op": "set", "path": ["items", "x"], "value": 1}])
        before = dump()
        with pytest.raises(InvalidWrites):
            store.promote_staging(session, "step")
        assert dump() == before

    def test_two_tools_side_by_side_both_survive(self, store: SessionStore, session: str) -> None:
        for call in ("one", "two"):
            store.stage_changes(
                session,
                "step",
                call,
                [
                    {"op": "append", "path": ["items"], "values": [call]},
                    {"op": "set", "path": ["by", call], "value": True},
                ],
            )
        store.promote_staging(session, "step")
        assert store.load_state(session).custom_state == {
            "items": ["one", "two"],
            "by": {"one": True, "two": True},
        }


class TestDiscard:
    def test_how_many_went(self, store: SessionStore, session: str) -> None:
        for step, call in (("one", "1"), ("one", "2"), ("two", "1")):
            store.stage_changes(session, step, call, append(0))
        assert store.discard_staging(session, "unknown") == 0
        assert store.discard_staging(session, "one") == 2
        assert staged(store, session) == [("two", "1", 0)]
        assert store.discard_staging(session) == 1
        assert store.discard_staging(session) == 0
        assert_invariants(session)

    def test_other_sessions_keep_theirs(self, store: SessionStore, session: str) -> None:
        store.create_session("other", agent_type="writer")
        store.stage_changes("other", "step", "call", WRITES)
        store.discard_staging(session)
        assert store.has_staged_changes("other")


class TestCleanup:
    HOUR = timedelta(hours=1)

    @pytest.fixture
    def session(self, store: SessionStore, session: str) -> str:
        """A session with two changes staged two hours ago and one staged now."""
        for call in ("1", "2"):
            store.stage_changes(session, "old", call, append(0))
        StagedRow.objects.update(staged_at=timezone.now() - 2 * self.HOUR)
        store.stage_changes(session, "new", "1", append(0))
        return session

    def test_what_is_older_goes(self, store: SessionStore, session: str) -> None:
        assert store.cleanup_orphaned_staging(older_than=3 * self.HOUR) == 0
        assert store.cleanup_orphaned_staging(older_than=self.HOUR) == 2
        assert staged(store, session) == [("new", "1", 0)]
        assert_invariants(session)

    def test_the_age_counts_from_the_last_staging(self, store: SessionStore, session: str) -> None:
        store.stage_changes(session, "old", "1", append(1))
        assert store.cleanup_orphaned_staging(older_than=self.HOUR) == 1

    def test_a_running_run_protects_all_of_it(self, store: SessionStore, session: str) -> None:
        store.create_run(session, run_id="r")
        assert store.cleanup_orphaned_staging(older_than=self.HOUR) == 0
        assert store.cleanup_orphaned_staging(older_than=self.HOUR, session_id=session) == 0
        store.update_run_status(session, "r", "failed")
        assert store.cleanup_orphaned_staging(older_than=self.HOUR) == 2

    def test_in_all_sessions_or_in_one(self, store: SessionStore, session: str) -> None:
        store.create_session("other", agent_type="writer")
        store.stage_changes("other", "step", "call", append(0))
        StagedRow.objects.filter(session_id="other").update(staged_at=timezone.now() - 2 * self.HOUR)
        assert store.cleanup_orphaned_staging(older_than=self.HOUR, session_id="other") == 1
        assert store.cleanup_orphaned_staging(older_than=self.HOUR) == 2

    def test_versions_and_logs_stay(self, store: SessionStore, session: str) -> None:
        before = store.load_state(session)
        store.cleanup_orphaned_staging(older_than=self.HOUR)
        assert store.load_state(session) == before

    def test_an_unknown_session_is_not_found(self, store: SessionStore) -> None:
        with pytest.raises(SessionNotFound):
            store.cleanup_orphaned_staging(older_than=self.HOUR, session_id="unknown")

    def test_many_changes_are_no_trouble(self, store: SessionStore, session: str) -> None:
        rows = StagedRow.objects.filter(step_id="new")
        for call in range(60):
            store.stage_changes(session, "many", str(call), [])
        StagedRow.objects.exclude(pk__in=rows).update(staged_at=timezone.now() - 2 * self.HOUR)
        assert store.cleanup_orphaned_staging(older_than=self.HOUR) == 62
        assert_invariants(session)
