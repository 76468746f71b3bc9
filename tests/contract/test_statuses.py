"""Status, by decree and by compare-and-set, and the counters."""

from dataclasses import replace
from typing import Any

import pytest

from helix_sessions.exceptions import InvalidInput
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.types import CasMismatch, CasOk
from tests.invariants import dump
from tests.rows import each

pytestmark = pytest.mark.django_db

STATUSES = ["active", "completed", "failed", "interrupted", "paused"]
WHY: dict[str, Any] = {"error": "broke", "failure_reason": "why", "interrupt_context": {"by": "user"}}


def reasons(store: SessionStore, session: str) -> dict[str, Any]:
    state = store.load_state(session)
    return {name: getattr(state, name) for name in WHY}


class TestUpdate:
    @each("after", STATUSES)
    @each("before", STATUSES)
    def test_it_is_unconditional(self, store: SessionStore, session: str, before: str, after: str) -> None:
        store.update_status(session, before)
        version = store.update_status(session, after)
        state = store.load_state(session)
        assert (state.status, state.version) == (after, version)

    def test_what_is_given_is_stored(self, store: SessionStore, session: str) -> None:
        version = store.update_status(session, "failed", output=[1, None], **WHY)
        state = store.load_state(session)
        assert version == state.version == 2
        assert state.output == [1, None]
        assert reasons(store, session) == WHY

    def test_none_leaves_a_value(self, store: SessionStore, session: str) -> None:
        store.update_status(session, "failed", output=1, **WHY)
        store.update_status(session, "interrupted", **dict.fromkeys(WHY))
        assert reasons(store, session) == WHY
        assert store.load_state(session).output == 1

    def test_an_output_of_none_is_a_value(self, store: SessionStore, session: str) -> None:
        store.update_status(session, "completed", output={"a": 1})
        store.update_status(session, "completed", output=None)
        assert store.load_state(session).output is None

    def test_entering_active_clears_what_went_wrong(self, store: SessionStore, session: str) -> None:
        store.update_status(session, "failed", output=1, **WHY)
        store.update_status(session, "active")
        assert reasons(store, session) == dict.fromkeys(WHY)
        assert store.load_state(session).output == 1

    def test_entering_active_keeps_what_is_given(self, store: SessionStore, session: str) -> None:
        store.update_status(session, "failed", **WHY)
        store.update_status(session, "active", error="new")
        assert reasons(store, session) == {"error": "new", "failure_reason": None, "interrupt_context": None}

    def test_empty_values_are_values(self, store: SessionStore, session: str) -> None:
        empty: dict[str, Any] = {"error": "", "failure_reason": "", "interrupt_context": {}}
        store.update_status(session, "failed", **WHY)
        store.update_status(session, "failed", **empty)
        assert reasons(store, session) == empty

    def test_the_event_says_from_where_to_where(self, store: SessionStore, session: str) -> None:
        store.update_status(session, "paused")
        event = store.get_events(session)[-1]
        assert event.type == "status_changed"
        assert (event.data["from"], event.data["to"]) == ("active", "paused")


class TestCompareAndSet:
    def test_an_expected_status_is_replaced(self, store: SessionStore, session: str) -> None:
        answer = store.compare_and_set_status(session, ["paused", "active"], "interrupted", **WHY)
        assert answer == CasOk(new_version=2)
        assert answer.ok
        assert answer
        state = store.load_state(session)
        assert (state.status, state.version) == ("interrupted", 2)
        assert reasons(store, session) == WHY

    def test_another_status_is_returned_and_nothing_changes(self, store: SessionStore, session: str) -> None:
        before = dump()
        answer = store.compare_and_set_status(session, ["paused", "failed"], "completed", error="x")
        assert answer == CasMismatch(current_status="active", current_version=1)
        assert not answer.ok
        assert not answer
        assert dump() == before

    def test_both_status_and_version_must_be_as_expected(self, store: SessionStore, session: str) -> None:
        store.update_status(session, "paused")
        mismatch = CasMismatch(current_status="paused", current_version=2)
        assert store.compare_and_set_status(session, ["paused"], "active", expected_version=1) == mismatch
        assert store.compare_and_set_status(session, ["active"], "active", expected_version=2) == mismatch
        ok = store.compare_and_set_status(session, ["paused"], "active", expected_version=2)
        assert ok == CasOk(new_version=3)

    def test_expecting_nothing_never_matches(self, store: SessionStore, session: str) -> None:
        assert not store.compare_and_set_status(session, [], "paused")

    @each("expected", [("active",), {"active"}, frozenset(["active"]), "active"])
    def test_any_collection_will_do(self, store: SessionStore, session: str, expected: Any) -> None:
        assert store.compare_and_set_status(session, expected, "paused")

    def test_the_same_status_again_is_a_change(self, store: SessionStore, session: str) -> None:
        assert store.compare_and_set_status(session, ["active"], "active") == CasOk(new_version=2)

    def test_entering_active_clears_unless_given(self, store: SessionStore, session: str) -> None:
        store.update_status(session, "failed", **WHY)
        store.compare_and_set_status(session, ["failed"], "active", failure_reason="kept")
        assert reasons(store, session) == {"error": None, "failure_reason": "kept", "interrupt_context": None}

    def test_none_leaves_a_value(self, store: SessionStore, session: str) -> None:
        store.update_status(session, "failed", **WHY)
        store.compare_and_set_status(session, ["failed"], "interrupted")
        assert reasons(store, session) == WHY


class TestCounters:
    def test_the_new_number_is_returned(self, store: SessionStore, session: str) -> None:
        assert [store.increment_step_count(session) for _ in range(3)] == [1, 2, 3]
        assert [store.increment_resume_count(session) for _ in range(2)] == [1, 2]
        state = store.load_state(session)
        assert (state.step_count, state.resume_count, state.version) == (3, 2, 6)

    def test_the_step_count_goes_on_from_what_was_saved(self, store: SessionStore, session: str) -> None:
        store.save_state(session, replace(store.load_state(session), step_count=41))
        assert store.increment_step_count(session) == 42

    def test_a_counter_at_its_end_is_refused(self, store: SessionStore, session: str) -> None:
        store.save_state(session, replace(store.load_state(session), step_count=2**63 - 1))
        before = dump()
        with pytest.raises(InvalidInput):
            store.increment_step_count(session)
        assert dump() == before

    def test_the_event_names_the_counter(self, store: SessionStore, session: str) -> None:
        store.increment_resume_count(session)
        event = store.get_events(session)[-1]
        assert (event.type, event.data) == ("counter_raised", {"counter": "resume_count", "value": 1})


def test_since_when_it_has_a_status(store: SessionStore, session: str) -> None:
    """The same status again, and whatever else is written, is nothing new."""

    def since() -> Any:
        return Session.objects.get(session_id=session).status_since

    store.update_status(session, "paused")
    first = since()
    store.update_status(session, "paused", error="again")
    store.compare_and_set_status(session, ["paused"], "paused")
    store.patch_metadata(session, {"a": 1})
    assert since() == first
    store.update_status(session, "active")
    assert since() > first
