"""References to sub-sessions."""

from dataclasses import replace
from typing import Any

import pytest

from helix_sessions.exceptions import InvalidInput, SubSessionRefExists, SubSessionRefNotFound
from helix_sessions.store import SessionStore
from helix_sessions.types import SubSessionRef
from tests.contract.calls import REF
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db

FULL = SubSessionRef(
    sub_session_id="full",
    agent_type="helper",
    parent_tool_call_id="call",
    status="paused",
    mode="persistent",
    location="remote",
    result={"b": 1, "a": [None]},
)


class TestAdd:
    def test_references_come_back_in_the_order_of_adding(self, store: SessionStore, session: str) -> None:
        store.add_sub_session_refs(session, [replace(REF, sub_session_id="z"), FULL])
        store.add_sub_session_refs(session, [replace(REF, sub_session_id="a")])
        refs = store.get_sub_session_refs(session)
        assert [ref.sub_session_id for ref in refs] == ["z", "full", "a"]
        full = refs[1]
        assert full == replace(FULL, created_at=full.created_at, updated_at=full.updated_at)
        assert full.created_at == full.updated_at is not None
        assert list(full.result) == ["b", "a"]
        assert_invariants(session)

    def test_the_defaults(self, store: SessionStore, session: str) -> None:
        store.add_sub_session_refs(session, [{"sub_session_id": "child", "agent_type": "helper"}])
        [ref] = store.get_sub_session_refs(session)
        assert (ref.parent_tool_call_id, ref.result) == (None, None)
        assert (ref.status, ref.mode, ref.location) == ("active", "ephemeral", "local")

    def test_the_sub_session_need_not_exist(self, store: SessionStore, session: str) -> None:
        store.add_sub_session_refs(session, [REF])
        assert not store.session_exists(REF.sub_session_id)

    def test_an_equal_one_again_is_nothing(self, store: SessionStore, session: str) -> None:
        store.add_sub_session_refs(session, [FULL])
        before = dump()
        assert store.add_sub_session_refs(session, [FULL, FULL]) == 2
        assert store.add_sub_session_refs(session, store.get_sub_session_refs(session)) == 2
        assert dump() == before

    def test_an_equal_one_beside_a_new_one(self, store: SessionStore, session: str) -> None:
        store.add_sub_session_refs(session, [REF])
        store.add_sub_session_refs(session, [REF, FULL])
        assert [ref.sub_session_id for ref in store.get_sub_session_refs(session)] == ["child", "full"]

    @each(
        "changes",
        [
            {"agent_type": "other"},
            {"parent_tool_call_id": "other"},
            {"status": "failed"},
            {"mode": "ephemeral"},
            {"location": "local"},
            {"result": None},
        ],
    )
    def test_another_one_under_its_id_is_refused(
        self, store: SessionStore, session: str, changes: dict[str, Any]
    ) -> None:
        store.add_sub_session_refs(session, [FULL])
        before = dump()
        with pytest.raises(SubSessionRefExists):
            store.add_sub_session_refs(session, [REF, replace(FULL, **changes)])
        assert dump() == before

    def test_two_of_one_id_in_one_call_are_refused(self, store: SessionStore, session: str) -> None:
        before = dump()
        with pytest.raises(SubSessionRefExists):
            store.add_sub_session_refs(session, [REF, replace(REF, agent_type="other")])
        assert dump() == before

    def test_a_result_is_equal_as_json_is(self, store: SessionStore, session: str) -> None:
        store.add_sub_session_refs(session, [replace(REF, result={"a": (1, 2)})])
        assert store.add_sub_session_refs(session, [replace(REF, result={"a": (1, 2)})]) == 2
        assert store.add_sub_session_refs(session, [replace(REF, result={"a": [1, 2]})]) == 2

    def test_each_is_logged(self, store: SessionStore, session: str) -> None:
        store.add_sub_session_refs(session, [REF, FULL])
        events = store.get_events(session, types=["subagent_spawned"])
        assert [event.data["sub_session_id"] for event in events] == ["child", "full"]
        assert store.load_state(session).version == 2


class TestUpdate:
    def test_what_is_given_changes(self, store: SessionStore, session: str) -> None:
        store.add_sub_session_refs(session, [REF, FULL])
        [before, other] = store.get_sub_session_refs(session)
        changed = store.update_sub_session_ref(session, "child", status="completed", result=[1, {"x": None}])
        [after, untouched] = store.get_sub_session_refs(session)
        assert after == changed
        assert after == replace(
            before, status="completed", result=[1, {"x": None}], updated_at=after.updated_at
        )
        assert after.updated_at == store.load_state(session).updated_at
        assert untouched == other

    def test_a_value_can_be_taken_back(self, store: SessionStore, session: str) -> None:
        store.add_sub_session_refs(session, [FULL])
        changed = store.update_sub_session_ref(session, "full", result=None, parent_tool_call_id=None)
        assert (changed.result, changed.parent_tool_call_id) == (None, None)
        assert store.get_sub_session_refs(session) == [changed]

    @each(
        "changes",
        [
            {"agent_type": "other"},
            {"parent_tool_call_id": "other"},
            {"status": "failed"},
            {"mode": "persistent"},
            {"location": "remote"},
            {"result": 0},
        ],
    )
    def test_every_field_can_be_changed(
        self, store: SessionStore, session: str, changes: dict[str, Any]
    ) -> None:
        store.add_sub_session_refs(session, [REF])
        store.update_sub_session_ref(session, "child", **changes)
        [ref] = store.get_sub_session_refs(session)
        assert {name: getattr(ref, name) for name in changes} == changes

    def test_an_unknown_one_is_not_found(self, store: SessionStore, session: str) -> None:
        store.create_session("other", agent_type="writer")
        store.add_sub_session_refs("other", [REF])
        before = dump()
        with pytest.raises(SubSessionRefNotFound):
            store.update_sub_session_ref(session, "child", status="failed")
        with pytest.raises(SubSessionRefNotFound):
            store.update_sub_session_ref(session, "child")
        assert dump() == before

    @each(
        "changes",
        [
            {"status": "running"},
            {"mode": "standard"},
            {"location": "moon"},
            {"agent_type": ""},
            {"agent_type": None},
            {"parent_tool_call_id": ""},
            {"created_at": None},
            {"unknown": 1},
        ],
    )
    def test_a_bad_change_is_refused(
        self, store: SessionStore, session: str, changes: dict[str, Any]
    ) -> None:
        store.add_sub_session_refs(session, [REF])
        before = dump()
        with pytest.raises(InvalidInput):
            store.update_sub_session_ref(session, "child", **changes)
        assert dump() == before
