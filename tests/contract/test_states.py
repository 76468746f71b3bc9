"""State: load, save, merge."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from helix_sessions.exceptions import InvalidWrites, ModeLocked, SessionNotFound
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.types import SessionState
from tests.contract.calls import USER
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db

NOT_OWNED = (  # noqa: SIM905
    "session_id agent_type stream_id parent_session_id root_session_id forked_from owner_id resume_count "
    "message_count checkpoint_id checkpointed_at checkpoint_source version head_seq created_at updated_at "
    "runnable_at last_agent_activity_at"
).split()
OWNED: dict[str, Any] = {
    "custom_state": {"z": 1, "a": [None, {}]},
    "status": "paused",
    "step_count": 7,
    "output": {"answer": 42},
    "error": "it broke",
    "failure_reason": "parent_suspended",
    "interrupt_context": {"reason": "user"},
    "pending_client_tool_calls": {"call-2": {"tool_name": "ask"}, "call-1": {}},
    "suspended_awaiting_children": {"call": {"sub_session_id": "child"}},
    "suspended_step_id": "step-7",
    "suspension_context": ["anything", 1],
    "completed_client_tool_calls": {"call-0": 1700000000000},
    "client_tool_call_ownership": {"call-1": "s"},
    "tracing_context": {"trace_id": "t", "root_span_id": "r"},
    "location": {"host": "a"},
    "expires_at": datetime(2031, 2, 3, 4, 5, 6, 789012, tzinfo=UTC),
    "user_id": "u",
    "tags": ("x", "y"),
    "metadata": {"k": [1]},
    "workspace_ref": {"provider": "p"},
}
OPTIONAL_MAPS = (
    "pending_client_tool_calls",
    "suspended_awaiting_children",
    "completed_client_tool_calls",
    "client_tool_call_ownership",
    "tracing_context",
    "location",
    "workspace_ref",
    "interrupt_context",
    "suspension_context",
    "output",
)


def test_the_lists_cover_the_state() -> None:
    assert {*NOT_OWNED, *OWNED, "mode"} == {field.name for field in fields(SessionState)}


class TestLoad:
    def test_an_unknown_session_is_not_found(self, store: SessionStore) -> None:
        with pytest.raises(SessionNotFound):
            store.load_state("unknown")

    def test_what_is_loaded_belongs_to_the_caller(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="writer", custom_state={"list": [1]})
        store.load_state("s").custom_state["list"].append(2)
        assert store.load_state("s").custom_state == {"list": [1]}


class TestSave:
    def test_everything_owned_comes_back(self, store: SessionStore, session: str) -> None:
        saved = store.save_state(session, replace(store.load_state(session), **OWNED))
        assert saved == store.load_state(session)
        for name, value in OWNED.items():
            assert getattr(saved, name) == value, name
        assert list(saved.pending_client_tool_calls or ()) == ["call-2", "call-1"]
        assert_invariants(session)

    def test_everything_owned_can_be_taken_back(self, store: SessionStore, session: str) -> None:
        empty = store.load_state(session)
        store.save_state(session, replace(empty, **OWNED))
        again = store.save_state(session, empty)
        for name in OWNED:
            assert getattr(again, name) == getattr(empty, name), name

    def test_what_is_not_owned_is_ignored(self, store: SessionStore, session: str) -> None:
        store.append_messages(session, [USER])
        before = store.load_state(session)
        forged: dict[str, Any] = dict.fromkeys(NOT_OWNED, "forged") | {
            "forked_from": ("x", None),
            "owner_id": 99,
            "version": 500,
            "head_seq": 500,
            "message_count": 500,
            "resume_count": 500,
            **dict.fromkeys(
                ("created_at", "runnable_at", "last_agent_activity_at"), datetime(2000, 1, 1, tzinfo=UTC)
            ),
        }
        after = store.save_state(session, replace(before, **forged))
        assert after == store.load_state(session)
        kept = set(NOT_OWNED) - {
            *("checkpoint_id", "checkpointed_at", "checkpoint_source", "version", "head_seq", "updated_at")
        }
        for name in kept:
            assert getattr(after, name) == getattr(before, name), name
        assert after.version == before.version + 1
        assert after.checkpoint_source == "save"

    def test_it_makes_a_checkpoint_with_source_save(self, store: SessionStore, session: str) -> None:
        saved = store.save_state(session, replace(store.load_state(session), **OWNED))
        checkpoint = store.get_latest_checkpoint(session)
        assert checkpoint is not None
        assert (checkpoint.checkpoint_id, checkpoint.source) == (saved.checkpoint_id, "save")
        assert checkpoint.created_at == saved.checkpointed_at
        assert checkpoint.state == saved

    @each("name", OPTIONAL_MAPS)
    def test_an_absent_map_and_an_empty_one_are_told_apart(
        self, store: SessionStore, session: str, name: str
    ) -> None:
        values: list[Any] = [{}, None, {}]
        for value in values:
            changes: dict[str, Any] = {name: value}
            saved = store.save_state(session, replace(store.load_state(session), **changes))
            assert getattr(saved, name) == value
            assert getattr(store.load_state(session), name) == value
            checkpoint = store.get_latest_checkpoint(session)
            assert checkpoint is not None
            assert getattr(checkpoint.state, name) == value

    @each("mode", ["persistent", "unknown", None])
    def test_the_mode_is_written_once(self, store: SessionStore, session: str, mode: Any) -> None:
        before = dump()
        with pytest.raises(ModeLocked):
            store.save_state(session, replace(store.load_state(session), mode=mode))
        assert dump() == before

    def test_the_step_count_may_go_back(self, store: SessionStore, session: str) -> None:
        store.save_state(session, replace(store.load_state(session), step_count=5))
        assert store.save_state(session, replace(store.load_state(session), step_count=0)).step_count == 0

    def test_a_changed_status_is_an_event_of_its_own(self, store: SessionStore, session: str) -> None:
        store.save_state(session, replace(store.load_state(session), status="completed"))
        types = [event.type for event in store.get_events(session)]
        assert types == ["session_started", "status_changed", "state_saved", "checkpoint_created"]

    def test_later_changes_to_what_was_passed_do_not_reach_the_store(
        self, store: SessionStore, session: str
    ) -> None:
        state = replace(store.load_state(session), custom_state={"list": [1]})
        saved = store.save_state(session, state)
        state.custom_state["list"].append(2)
        assert saved.custom_state == store.load_state(session).custom_state == {"list": [1]}

    @each(
        ("pending", "awaiting"),
        [
            (None, False),
            ({}, False),
            ({"call": {"tool_name": "ask"}}, True),
            ({"call": {"submitted_at": "2030-01-01T00:00:00Z"}}, False),
            ({"one": {"submitted_at": "2030-01-01T00:00:00Z"}, "two": {}}, True),
        ],
    )
    def test_sessions_that_wait_for_a_client_can_be_found(
        self, store: SessionStore, session: str, pending: Any, awaiting: bool
    ) -> None:
        store.save_state(session, replace(store.load_state(session), pending_client_tool_calls=pending))
        assert Session.objects.awaiting_client().filter(session_id=session).exists() is awaiting


class TestMerge:
    def test_the_new_state_is_returned_and_stored(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="writer", custom_state={"user": {"name": "A", "age": 1}})
        merged = store.merge_custom_state("s", [{"op": "set", "path": ["user", "name"], "value": "B"}])
        assert merged == store.load_state("s")
        assert merged.custom_state == {"user": {"name": "B", "age": 1}}
        assert merged.checkpoint_id is None

    def test_writes_are_applied_in_order(self, store: SessionStore, session: str) -> None:
        merged = store.merge_custom_state(
            session,
            [
                {"op": "append", "path": ["items"], "values": [2, 3]},
                {"op": "insert", "path": ["items", 0], "value": 1},
                {"op": "set", "path": ["items", 3], "value": 4},
                {"op": "delete", "path": ["items", 1]},
                {"op": "delete", "path": ["nothing", "here"]},
            ],
        )
        assert merged.custom_state == {"items": [1, 3, 4]}

    def test_two_appends_to_one_list_both_survive(self, store: SessionStore, session: str) -> None:
        for value in (1, 2):
            store.merge_custom_state(session, [{"op": "append", "path": ["items"], "values": [value]}])
        assert store.load_state(session).custom_state == {"items": [1, 2]}

    def test_json_patches_are_accepted(self, store: SessionStore, session: str) -> None:
        merged = store.merge_custom_state(
            session,
            [
                {"op": "add", "path": "/items", "value": [1]},
                {"op": "add", "path": "/items/-", "value": 3},
                {"op": "add", "path": "/items/1", "value": 2},
                {"op": "replace", "path": "/items/0", "value": 0},
                {"op": "remove", "path": "/items/2"},
            ],
        )
        assert merged.custom_state == {"items": [0, 2]}

    def test_the_whole_document_may_be_set_to_an_object(self, store: SessionStore, session: str) -> None:
        store.merge_custom_state(session, [{"op": "set", "path": ["a"], "value": 1}])
        merged = store.merge_custom_state(session, [{"op": "set", "path": [], "value": {"b": 2}}])
        assert merged.custom_state == {"b": 2}

    @each(
        "write",
        [
            {"op": "append", "path": ["text"], "values": [1]},
            {"op": "set", "path": ["text", "x"], "value": 1},
            {"op": "set", "path": ["items", -1], "value": 1},
            {"op": "set", "path": ["items", 5], "value": 1},
            {"op": "insert", "path": ["items", 2], "value": 1},
            {"op": "set", "path": [], "value": [1]},
            {"op": "delete", "path": []},
            {"op": "test", "path": "/text", "value": "x"},
            {"op": "move", "path": "/text", "from": "/items"},
            {"op": "copy", "path": "/text", "from": "/items"},
            {"op": "explode", "path": ["text"]},
        ],
    )
    def test_all_or_none(self, store: SessionStore, write: dict[str, Any]) -> None:
        store.create_session("s", agent_type="writer", custom_state={"text": "x", "items": [1]})
        before = dump()
        with pytest.raises(InvalidWrites, match="Write 1"):
            store.merge_custom_state("s", [{"op": "set", "path": ["good"], "value": 1}, write])
        assert dump() == before

    def test_the_event_holds_the_writes(self, store: SessionStore, session: str) -> None:
        writes = [{"op": "set", "path": ["a"], "value": {"b": [1, None]}}]
        store.merge_custom_state(session, writes)
        event = store.get_events(session)[-1]
        assert (event.type, event.data) == ("state_merged", {"writes": writes})

    def test_the_rest_of_the_state_stays(self, store: SessionStore, session: str) -> None:
        before = store.save_state(session, replace(store.load_state(session), **OWNED))
        after = store.merge_custom_state(session, [{"op": "set", "path": ["new"], "value": 1}])
        changed = {"custom_state", "version", "head_seq", "updated_at"}
        for field in fields(SessionState):
            if field.name not in changed:
                assert getattr(after, field.name) == getattr(before, field.name), field.name


class TestLargeStates:
    """Large documents are stored as changes on a base; nobody may notice."""

    def test_every_checkpoint_has_the_state_of_its_moment(self, store: SessionStore, session: str) -> None:
        state: dict[str, Any] = {"pad": ["x" * 50 for _ in range(500)], "log": [], "n": 0}
        expected: dict[str, Any] = {}
        store.save_state(session, replace(store.load_state(session), custom_state=state))
        for step in range(30):
            store.merge_custom_state(session, [{"op": "append", "path": ["log"], "values": [step]}])
            current = store.load_state(session)
            custom = dict(current.custom_state, n=step)
            if step % 7 == 3:
                custom = {"n": step, **{key: custom[key] for key in reversed(list(custom)) if key != "n"}}
            if step == 20:
                custom = {"small": True, "log": [], "pad": custom["pad"]}
            if step % 3 == 0:
                saved = store.save_state(session, replace(current, custom_state=custom))
                expected[saved.checkpoint_id or ""] = custom
            assert_invariants(session)
        found = {item.checkpoint_id: item.state for item in store.list_checkpoints(session).items}
        for key, custom in expected.items():
            for read in (found[key], store.get_checkpoint(session, key).state):
                assert read.custom_state == custom
                assert list(read.custom_state) == list(custom)

    def test_a_branch_at_any_checkpoint_has_it_too(self, store: SessionStore, session: str) -> None:
        pad = {f"k{number}": "x" * 100 for number in range(300)}
        saved = [
            store.save_state(session, replace(store.load_state(session), custom_state={**pad, "n": n}))
            for n in range(5)
        ]
        for number, state in enumerate(saved):
            branch = store.clone_session(session, f"branch-{number}", checkpoint_id=state.checkpoint_id)
            assert branch.custom_state == {**pad, "n": number}
            assert store.load_state(f"branch-{number}") == branch
