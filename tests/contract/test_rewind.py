"""Back to a checkpoint: state and transcript as they were, and a log that says what happened."""

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import CheckpointNotFound, SessionNotFound, StaleState, StillWaiting
from helix_sessions.store import SessionStore
from helix_sessions.types import SessionState
from tests.contract.suspended import (
    asked,
    calling,
    child,
    error,
    messages,
    result,
    suspend,
    suspended,
    wait_for,
)
from tests.invariants import assert_invariants, assert_valid_transcript, dump

pytestmark = pytest.mark.django_db

NOT_PUT_BACK = ("version", "head_seq", "resume_count", "updated_at")


def as_it_was(state: SessionState) -> dict[str, Any]:
    return {f.name: getattr(state, f.name) for f in fields(state) if f.name not in NOT_PUT_BACK}


def say(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


@pytest.fixture
def session(store: SessionStore) -> str:
    """A session with checkpoints `one` and `two` and more after them."""
    store.create_session("s", agent_type="agent", custom_state={"n": 0})
    for number, name in enumerate(["one", "two"], 1):
        state = store.load_state("s")
        state = replace(
            state,
            step_count=number,
            custom_state={"n": number},
            output={"o": number},
            tags=(name,),
            metadata={"m": name},
        )
        store.save_state_and_promote_staging(
            "s", state, say(f"{name} a", f"{name} b"), {"checkpoint_id": name}
        )
    store.append_messages("s", say("after"))
    store.merge_custom_state("s", [{"op": "set", "path": ["n"], "value": 99}])
    store.update_status("s", "failed", error="broke", failure_reason="why")
    return "s"


def test_the_latest(store: SessionStore, session: str):
    before = store.load_state(session)
    state = store.rewind(session)
    assert state == store.load_state(session)
    assert as_it_was(state) == as_it_was(store.get_checkpoint(session, "two").state)
    assert state.version == before.version + 1
    assert messages(store, session) == say("one a", "one b", "two a", "two b")
    assert store.get_events(session)[-1].type == "session_rewound"
    assert_invariants(session)
    rows = dump()
    assert store.rewind(session) == state
    assert dump() == rows, "nothing to do"


def test_an_earlier_one_is_the_latest_from_then_on(store: SessionStore, session: str):
    state = store.rewind(session, checkpoint_id="one")
    assert as_it_was(state) == as_it_was(store.get_checkpoint(session, "one").state)
    assert messages(store, session) == say("one a", "one b")
    latest = store.get_latest_checkpoint(session)
    assert latest is not None
    assert latest.checkpoint_id == state.checkpoint_id == "one"
    assert [c.checkpoint_id for c in store.list_checkpoints(session).items] == ["two", "one"]
    store.append_messages(session, say("another way"))
    assert store.rewind(session) == replace(store.load_state(session))
    assert messages(store, session) == say("one a", "one b")
    forward = store.rewind(session, checkpoint_id="two")
    assert as_it_was(forward) == as_it_was(store.get_checkpoint(session, "two").state)
    assert messages(store, session) == say("one a", "one b", "two a", "two b")
    assert_invariants(session)


def test_what_was_truncated_since_is_there_again(store: SessionStore, session: str):
    """The log keeps that it was hidden; it is said again, not unhidden."""
    store.truncate_messages(session, 1)
    store.append_messages(session, say("other"))
    head = store.load_state(session).head_seq
    store.rewind(session)
    assert messages(store, session) == say("one a", "one b", "two a", "two b")
    types = [event.type for event in store.get_events(session, head + 1)]
    assert types.count("user_message") == 3
    assert types.count("messages_truncated") == 1
    projected = store.project_messages(store.get_events(session))
    assert [line.content for line in projected] == ["one a", "one b", "two a", "two b"]
    assert_invariants(session)


def test_a_large_document(store: SessionStore):
    large = {"blob": "x" * 30_000, "n": 0}
    store.create_session("s", agent_type="agent", custom_state=large)
    for number in range(4):
        state = replace(store.load_state("s"), custom_state={**large, "n": number})
        store.save_state_and_promote_staging("s", state, [], {"checkpoint_id": str(number)})
    for number in (1, 3, 0, 2):
        assert store.rewind("s", checkpoint_id=str(number)).custom_state == {**large, "n": number}
        assert store.load_state("s").custom_state["n"] == number
        assert_invariants("s")
        store.merge_custom_state("s", [{"op": "set", "path": ["n"], "value": -1}])
        assert_invariants("s")


def test_staged_changes_are_discarded(store: SessionStore, session: str):
    store.rewind(session)
    store.stage_changes(session, "step", "call", [{"op": "set", "path": ["n"], "value": 7}])
    store.rewind(session)
    assert not store.has_staged_changes(session)


def test_a_suspension_waits_again(store: SessionStore):
    """Rewound to the moment it was suspended, a session waits for the same calls, and answers count anew."""
    deadline = timezone.now() + timedelta(hours=1)
    store.begin_turn("root")
    child(store, "root", "kid", "c")
    checkpoint = suspend(store, "kid", asked("a", deadline=deadline)).checkpoint_id
    store.submit_tool_result("root", "a", result=1)
    run = store.resume("kid").run
    store.update_run_status("kid", run.run_id, "failed")
    store.rewind("kid", checkpoint_id=checkpoint)
    assert store.submit_tool_result("root", "a", result=2).outcome == "accepted"
    assert store.resume("kid").tool_messages == [result("a", 2)]
    assert messages(store, "kid")[1:] == [calling("a"), result("a", 2)]
    assert store.submit_tool_result("root", "a", result=2).outcome == "already_completed"
    assert_invariants("kid")
    assert_valid_transcript("kid")


def test_a_child_that_ended_meanwhile_is_not_waited_for(store: SessionStore):
    store.begin_turn("s")
    child(store, "s", "kid", "c")
    waits = [wait_for("c", "kid")]
    suspend(store, "s", kind="awaiting_children", append_messages=[calling("c")], awaiting_children=waits)
    store.settle_child("kid", "completed", output=5)
    store.update_run_status("kid", store.list_runs("kid").items[0].run_id, "completed")
    run = store.resume("s").run
    store.update_run_status("s", run.run_id, "failed")
    store.rewind("s")
    assert store.resume("s").tool_messages == [result("c", 5)]
    assert_valid_transcript("s")


def test_nor_is_one_that_was_made_active_after_its_end(store: SessionStore):
    """It rests, and would never end again. One that runs again is waited for."""
    for status in ("completed", "failed"):
        parent, kid = f"s {status}", f"kid {status}"
        store.begin_turn(parent)
        child(store, parent, kid, "c")
        waits = [wait_for("c", kid)]
        said = [calling("c")]
        suspend(store, parent, kind="awaiting_children", append_messages=said, awaiting_children=waits)
        store.settle_child(kid, status, output=5, error="no" if status == "failed" else None)
        store.update_run_status(kid, store.list_runs(kid).items[0].run_id, "completed")
        store.update_status(kid, "active")
        store.rewind(parent)
        expected = result("c", 5) if status == "completed" else error("c", "no")
        assert store.load_state(parent).runnable_at is not None, status
        run = store.resume(parent).run
        assert messages(store, parent)[-1] == expected, status
        store.update_run_status(parent, run.run_id, "failed")
        store.begin_turn(kid, message="once more")
        store.rewind(parent)
        with pytest.raises(StillWaiting):
            store.resume(parent)


def test_refusals(store: SessionStore, session: str):
    store.create_session("empty", agent_type="agent")
    suspended(store, "other", checkpoint_meta={"checkpoint_id": "of another"})
    before = dump()
    with pytest.raises(CheckpointNotFound):
        store.rewind("empty")
    with pytest.raises(CheckpointNotFound):
        store.rewind(session, checkpoint_id="of another")
    with pytest.raises(SessionNotFound):
        store.rewind("gone")
    with pytest.raises(StaleState):
        store.rewind(session, expected_version=99)
    assert dump() == before


def test_a_rewind_that_changes_the_state_discards_what_is_staged(store: SessionStore, session: str) -> None:
    store.create_checkpoint(session, {"checkpoint_id": "c"})
    store.merge_custom_state(session, [{"op": "set", "path": ["a"], "value": 1}])
    store.stage_changes(session, "step", "call", [{"op": "set", "path": ["b"], "value": 1}])
    store.rewind(session, checkpoint_id="c")

    assert store.get_staged_changes(session) == []
    assert_invariants(session)


def test_a_rewind_that_only_brings_messages_back_is_logged(store: SessionStore, session: str) -> None:
    store.create_checkpoint(session, {"checkpoint_id": "c"})
    before = store.get_messages(session)
    store.truncate_messages(session, 1)
    store.rewind(session, checkpoint_id="c")

    assert store.get_messages(session) == before
    assert store.get_events(session)[-1].type == "session_rewound"
