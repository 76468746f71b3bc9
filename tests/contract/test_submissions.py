"""Answers: accepted once, known for ever, never of the wrong kind."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import (
    InvalidDocument,
    InvalidInput,
    SessionNotFound,
    StaleState,
    SubmissionMismatch,
    UnknownToolCall,
)
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.store.calls import call_index, submissions
from helix_sessions.types import Submission
from tests.contract.suspended import approval, asked, child, error, messages, result, suspend, suspended
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db

PAST = timedelta(seconds=-1)


def test_accepted_once(store: SessionStore):
    suspended(store, "s", asked("a"), approval("b"))
    before = store.load_state("s")

    outcome = store.submit_tool_result("s", "a", result={"x": [1, None]})

    assert outcome == Submission(outcome="accepted", owner_session_id="s", remaining=1)
    now = store.load_state("s")
    entry = (now.pending_client_tool_calls or {})["a"]
    assert entry["response"] == {"result": {"x": [1, None]}}
    assert entry["submitted_at"]
    assert now.version == before.version + 1
    assert store.get_events("s")[-1].type == "tool_result_submitted"
    assert store.get_events("s")[-1].data["tool_call_id"] == "a"
    rows = dump()
    again = store.submit_tool_result("s", "a", result="another")
    assert again == Submission(outcome="already_completed", owner_session_id="s", remaining=1)
    assert dump() == rows
    store.submit_tool_result("s", "b", approved=True)
    store.resume("s")
    rows = dump()
    assert store.submit_tool_result("s", "a", result=1).outcome == "already_completed"
    assert store.submit_tool_result("s", "b", approved=False).outcome == "already_completed"
    assert dump() == rows
    assert_invariants("s")


def test_none_is_a_result(store: SessionStore):
    suspended(store, "s", asked("a"))
    assert store.submit_tool_result("s", "a", result=None).outcome == "accepted"
    assert store.resume("s").tool_messages == [result("a", None)]


def test_through_the_root_three_deep(store: SessionStore):
    store.begin_turn("root")
    child(store, "root", "middle", "c1")
    child(store, "middle", "leaf", "c2")
    suspend(store, "leaf", asked("a"), asked("b"))
    root, middle = store.load_state("root"), store.load_state("middle")

    assert store.submit_tool_result("root", "a", result=1) == Submission(
        outcome="accepted", owner_session_id="leaf", remaining=1
    )
    assert store.submit_tool_result("leaf", "b", error="no") == Submission(
        outcome="accepted", owner_session_id="leaf", remaining=0
    )

    assert store.load_state("root") == root
    assert store.load_state("middle") == middle
    with pytest.raises(UnknownToolCall):
        store.submit_tool_result("middle", "a", result=1)
    store.resume("leaf")
    completed = store.load_state("root").completed_client_tool_calls
    assert list(completed or {}) == ["a", "b"]
    assert store.submit_tool_result("root", "a", result=1) == Submission(
        outcome="already_completed", owner_session_id="leaf", remaining=0
    )
    for key in ("root", "middle", "leaf"):
        assert_invariants(key)


def test_the_same_id_again_in_a_later_turn(store: SessionStore):
    """Providers number calls anew: an id that was answered may wait again, here or in another session."""
    store.begin_turn("root")
    for _ in range(2):
        suspend(store, "root", asked("a"))
        assert store.submit_tool_result("root", "a", result=1).outcome == "accepted"
        assert store.submit_tool_result("root", "a", result=1).outcome == "already_completed"
        store.resume("root")
    child(store, "root", "kid", "c")
    suspend(store, "kid", asked("a"))
    assert store.submit_tool_result("root", "a", result=1) == Submission(
        outcome="accepted", owner_session_id="kid", remaining=0
    )


@each(
    ("call", "answer"),
    [
        (asked("a"), {}),
        (asked("a"), {"result": 1, "error": "x"}),
        (asked("a"), {"result": 1, "approved": True}),
        (asked("a"), {"approved": True}),
        (asked("a"), {"approved": False}),
        (asked("a"), {"result": 1, "approval_id": "p"}),
        (approval("a", approval_id="p"), {"result": 1}),
        (approval("a", approval_id="p"), {"approved": True, "approval_id": "q"}),
        (approval("a", approval_id="p"), {"approved": True, "error": "x"}),
    ],
)
def test_the_wrong_kind(store: SessionStore, call: Any, answer: dict[str, Any]):
    suspended(store, "s", call)
    before = dump()
    with pytest.raises(SubmissionMismatch) as caught:
        store.submit_tool_result("s", "a", **answer)
    assert caught.value.code == "submission_mismatch"
    assert dump() == before


@each(
    ("answer", "expected"),
    [
        ({"result": float("nan")}, InvalidDocument),
        ({"result": "x" * (1024 * 1024)}, InvalidDocument),
        ({"error": "x" * (8 * 1024 + 1)}, InvalidDocument),
        ({"error": "é" * (4 * 1024 + 1)}, InvalidDocument),
        ({"error": "\ud800"}, InvalidDocument),
        ({"error": 1}, InvalidInput),
        ({"approved": "yes"}, InvalidInput),
        ({"result": 1, "approval_id": "x" * 257}, InvalidDocument),
        ({"result": 1, "expected_version": 99}, StaleState),
    ],
)
def test_limits(store: SessionStore, answer: dict[str, Any], expected: type[Exception]):
    suspended(store, "s", asked("a"))
    before = dump()
    with pytest.raises(expected):
        store.submit_tool_result("s", "a", **answer)
    assert dump() == before


def test_what_is_just_allowed(store: SessionStore):
    long = "x" * 256
    suspended(store, "s", asked(long, approval_id=long), asked("b"))
    assert store.submit_tool_result("s", long, result="x" * (1024 * 1024 - 2)).outcome == "accepted"
    assert store.submit_tool_result("s", "b", error="x" * 8 * 1024).outcome == "accepted"
    with pytest.raises(InvalidDocument):
        store.submit_tool_result("s", "x" * 257, result=1)


def test_unknown(store: SessionStore):
    suspended(store, "s", asked("a"))
    with pytest.raises(UnknownToolCall) as caught:
        store.submit_tool_result("s", "b", result=1)
    assert caught.value.code == "unknown_tool_call"
    with pytest.raises(SessionNotFound):
        store.submit_tool_result("gone", "a", result=1)


def test_denial(store: SessionStore):
    suspended(store, "s", *(approval(call_id) for call_id in "abcd"))
    store.submit_tool_result("s", "a", approved=False, reason="too expensive")
    store.submit_tool_result("s", "b", error="no")
    store.submit_tool_result("s", "c", approved=False)
    store.submit_tool_result("s", "d", approved=True, reason="fine")
    told = [event.data["answer"] for event in store.get_events("s", types=["tool_result_submitted"])]
    assert told == ["denied", "denied", "denied", "approved"], "an error for an approval is a denial"
    answer = store.resume("s")
    assert [m["content"] for m in answer.tool_messages] == ["too expensive", "no", "The call was denied."]
    assert all(m["is_error"] for m in answer.tool_messages)
    [entry] = answer.approved
    assert (entry["tool_call_id"], entry["response"]) == ("d", {"approved": True, "reason": "fine"})


class TestDeadlines:
    def test_passing_it_is_an_error_result(self, store: SessionStore):
        now = timezone.now()
        suspended(
            store,
            "s",
            asked("a", deadline=now + PAST),
            asked("b", deadline=now + timedelta(hours=1)),
            asked("c"),
        )
        suspended(store, "t", approval("a", deadline=now + PAST))
        assert store.settle_expired_calls() == 2
        assert store.settle_expired_calls() == 0
        row = Session.objects.get(session_id="s")
        assert (row.awaiting_client, row.next_deadline) == (True, now + timedelta(hours=1))
        assert store.settle_expired_calls(now + timedelta(hours=1)) == 1
        store.submit_tool_result("s", "c", result=1)
        said = [message.get("is_error") for message in store.resume("s").tool_messages]
        assert said == [True, True, None]
        assert store.resume("t").approved == []
        assert_invariants("s")

    def test_an_answer_before_the_resume_replaces_the_timeout(self, store: SessionStore):
        suspended(store, "s", asked("a", deadline=timezone.now() + PAST))
        store.settle_expired_calls()
        assert store.submit_tool_result("s", "a", result="late, not too late").outcome == "accepted"
        assert store.submit_tool_result("s", "a", result="again").outcome == "already_completed"
        assert store.settle_expired_calls() == 0
        assert store.resume("s").tool_messages == [result("a", "late, not too late")]
        assert store.submit_tool_result("s", "a", result="again").outcome == "already_completed"

    def test_an_answer_after_it_is_late_and_recorded_once(self, store: SessionStore):
        suspended(store, "s", asked("a", deadline=timezone.now() + PAST))
        resumed = store.resume("s")
        assert resumed.tool_messages == [error("a", "The deadline for an answer has passed.")]
        version = store.load_state("s").version
        for _ in range(2):
            late = store.submit_tool_result("s", "a", result={"too": "late"})
            assert late == Submission(outcome="late", owner_session_id="s", remaining=0)
        [event] = store.get_events("s", types=["tool_result_late"])
        assert event.data == {"tool_call_id": "a", "response": {"result": {"too": "late"}}}
        assert store.load_state("s").version == version, "the running agent's version went stale"
        assert len(messages(store, "s")) == 3
        assert_invariants("s")

    def test_sessions_are_found_by_index(self, store: SessionStore, django_assert_max_num_queries):
        for number in range(20):
            suspended(store, f"s{number}", asked("a"))
        with django_assert_max_num_queries(1):
            assert store.settle_expired_calls() == 0

    def test_many(self, store: SessionStore):
        deadline = timezone.now() + PAST
        for number in range(12):
            suspended(store, f"s{number}", asked("a", deadline=deadline), asked("b", deadline=deadline))
        assert store.settle_expired_calls() == 24

    def test_all_that_have_the_same(self, store: SessionStore, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(submissions, "_BATCH", 2)
        deadline = timezone.now() + PAST
        for number in range(5):
            suspended(store, f"s{number}", asked("a", deadline=deadline))
        assert store.settle_expired_calls() == 5

    def test_it_is_told_by_whoever_settles_it(self, store: SessionStore):
        for key in "st":
            suspended(store, key, asked("a", deadline=timezone.now() + PAST))
        store.resume("s")
        store.settle_expired_calls()
        for key in "st":
            [event] = store.get_events(key, types=["tool_result_expired"])
            assert event.data == {"tool_call_id": "a"}, key

    def test_a_naive_time_is_refused(self, store: SessionStore):
        with pytest.raises(InvalidInput):
            store.settle_expired_calls(timezone.now().replace(tzinfo=None))


def test_a_session_whose_root_is_elsewhere_is_its_own(store: SessionStore):
    """Its root may be in another database: answers are sent to the session itself, and known ever after."""
    store.create_session("s", agent_type="a", root_session_id="elsewhere")
    store.create_run("s", run_id="r")
    suspend(store, "s", asked("a"), asked("b", deadline=timezone.now()))
    assert store.submit_tool_result("s", "a", result=1).outcome == "accepted"
    store.resume("s")
    assert store.submit_tool_result("s", "a", result=1).outcome == "already_completed"
    assert store.submit_tool_result("s", "b", result=1).outcome == "late"
    assert_invariants("s")


def test_a_session_that_has_the_name_of_one_of_the_tree(store: SessionStore):
    """Whoever may answer for a tree may not for a session that was later created under a name it knew."""
    store.begin_turn("root")
    child(store, "root", "kid", "c")
    suspend(store, "kid", asked("a"))
    store.delete_session("kid")
    suspended(store, "kid", asked("a"))
    before = dump()
    with pytest.raises(UnknownToolCall):
        store.submit_tool_result("root", "a", result=1)
    assert dump() == before
    assert store.submit_tool_result("kid", "a", result=1).outcome == "accepted"


def test_maps_that_a_caller_saved(store: SessionStore):
    """Who saves states may keep the maps alone; the root's map finds the owner, the other knows the past."""
    store.begin_turn("root")
    child(store, "root", "kid", "c")
    entry = {"tool_call_id": "a", "tool_name": "t", "kind": "client_tool"}
    store.save_state("kid", replace(store.load_state("kid"), pending_client_tool_calls={"a": entry}))
    owners = {"a": "kid", "old": "kid"}
    store.save_state(
        "root",
        replace(
            store.load_state("root"),
            client_tool_call_ownership=owners,
            completed_client_tool_calls={"old": 17},
        ),
    )
    assert store.submit_tool_result("root", "a", result=1).owner_session_id == "kid"
    assert store.submit_tool_result("root", "old", result=1).outcome == "already_completed"
    assert store.load_state("root").client_tool_call_ownership == owners


def test_what_a_saved_map_says_of_one_session_is_not_true_of_another(store: SessionStore) -> None:
    store.begin_turn("root")
    child(store, "root", "kid", "c1")
    child(store, "root", "other", "c2")
    maps: dict[str, Any] = {
        "client_tool_call_ownership": {"a": "kid"},
        "completed_client_tool_calls": {"a": "2020-01-01"},
    }
    store.save_state("root", replace(store.load_state("root"), **maps))

    assert store.submit_tool_result("kid", "a", result=1).outcome == "already_completed"
    with pytest.raises(UnknownToolCall):
        store.submit_tool_result("other", "a", result=1)


def test_the_root_shows_the_calls_that_were_consumed_last(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was consumed again is among the last."""
    monkeypatch.setattr(call_index, "SHOWN", 2)
    store.begin_turn("s")
    for call_id in ("a", "b", "a", "c"):
        suspend(store, "s", asked(call_id))
        store.submit_tool_result("s", call_id, result=1)
        store.resume("s")

    state = store.load_state("s")
    assert list(state.completed_client_tool_calls or {}) == ["a", "c"]
    assert set(state.client_tool_call_ownership or {}) == {"a", "c"}
    assert store.submit_tool_result("s", "b", result=1).outcome == "already_completed"


def test_a_denial_tells_its_reason_before_its_error(store: SessionStore) -> None:
    suspended(store, "s", approval("a"))
    store.submit_tool_result("s", "a", error="refused", reason="too expensive")
    assert store.resume("s").tool_messages == [error("a", "too expensive")]
