"""Two persistent companions of one parent: each goes its own way, and the parent hears of both."""

from collections.abc import Callable
from typing import Any

import pytest

from helix_sessions.exceptions import StillWaiting
from helix_sessions.store import SessionStore
from tests.contract.suspended import asked, calling, child, messages, result, suspend, wait_for
from tests.invariants import assert_healthy, assert_invariants, assert_valid_transcript
from tests.parallel import run_threads

pytestmark = pytest.mark.django_db(transaction=True)

PAIR = ("left", "right")


def family(store: SessionStore, number: int) -> dict[str, str]:
    """A running parent with two running companions; their ids by name."""
    root = f"root {number}"
    store.begin_turn(root, message="hello")
    ids = {name: f"{root}/{name}" for name in PAIR}
    for name, key in ids.items():
        child(store, root, key, name, mode="persistent")
    return {"root": root, **ids}


def runs_of(store: SessionStore, ids: dict[str, str]) -> list[Any]:
    return [store.get_current_run(ids[name]) for name in PAIR]


def test_a_suspended_parent_leaves_both_alone(store: SessionStore) -> None:
    ids = family(store, 0)
    before = runs_of(store, ids)
    suspend(
        store,
        ids["root"],
        asked("r"),
        awaiting_children=[wait_for("left", ids["left"])],
        append_messages=[calling("left", "r")],
    )
    assert runs_of(store, ids) == before
    store.submit_tool_result(ids["root"], "r", result=1)
    with pytest.raises(StillWaiting) as caught:
        store.resume(ids["root"])
    assert caught.value.sub_session_ids == (ids["left"],)
    store.settle_child(ids["left"], "completed", output="one")
    resumed = store.resume(ids["root"])
    assert (resumed.respawn, runs_of(store, ids)) == ([], before)
    assert [ref.status for ref in store.get_sub_session_refs(ids["root"])] == ["completed", "active"]
    assert_healthy(*ids.values())


def test_both_ask_under_one_id_and_each_gets_its_own_answer(store: SessionStore) -> None:
    """Providers number calls anew in each conversation."""
    for number in range(5):
        ids = family(store, number)
        keys = [ids[name] for name in PAIR]
        for outcome in both(lambda key: suspend(SessionStore(), key, asked("call_1")), keys):
            assert not isinstance(outcome, Exception), outcome
        told = both(lambda key: SessionStore().submit_tool_result(key, "call_1", result=key), keys)
        assert [(one.outcome, one.owner_session_id) for one in told] == [("accepted", key) for key in keys]
        resumed = both(lambda key: SessionStore().resume(key), keys)
        for key, outcome in zip(keys, resumed, strict=True):
            assert outcome.tool_messages == [result("call_1", key)], outcome
            assert store.submit_tool_result(key, "call_1", result=0).outcome == "already_completed"
            assert_valid_transcript(key)
        assert_healthy(*ids.values())


def both(call: Callable[[str], Any], keys: list[str]) -> list[Any]:
    return run_threads(len(keys), lambda index: call(keys[index]))


def test_through_the_root_both_are_answered_one_after_the_other(store: SessionStore) -> None:
    ids = family(store, 0)
    for name in PAIR:
        suspend(store, ids[name], asked("call_1"))
    first = store.submit_tool_result(ids["root"], "call_1", result=1)
    assert first.outcome == "accepted"
    store.resume(first.owner_session_id)
    second = store.submit_tool_result(ids["root"], "call_1", result=2)
    assert (second.outcome, {first.owner_session_id, second.owner_session_id}) == (
        "accepted",
        {ids[name] for name in PAIR},
    )


def test_both_end_at_once_and_the_parent_hears_of_both(store: SessionStore) -> None:
    for number in range(8):
        ids = family(store, number)
        waits = [wait_for(name, ids[name]) for name in PAIR]
        suspend(
            store,
            ids["root"],
            kind="awaiting_children",
            awaiting_children=waits,
            append_messages=[calling(*PAIR)],
        )

        def act(index: int, ids: dict[str, str] = ids) -> Any:
            theirs = SessionStore()
            if index < 4:  # each ends twice, which is once
                return theirs.settle_child(ids[PAIR[index % 2]], "completed", output=PAIR[index % 2])
            while True:
                try:
                    return theirs.resume(ids["root"]).tool_messages
                except StillWaiting:
                    continue

        outcomes = run_threads(5, act)
        assert outcomes == [None] * 4 + [[result("left", "left"), result("right", "right")]]
        assert len(store.get_events(ids["root"], types=["subagent_result"])) == 2
        assert messages(store, ids["root"])[-2:] == outcomes[4]
        assert_invariants(ids["root"])


def test_one_is_deleted_while_the_other_ends(store: SessionStore) -> None:
    for number in range(8):
        ids = family(store, number)
        suspend(
            store,
            ids["root"],
            kind="awaiting_children",
            append_messages=[calling(*PAIR)],
            awaiting_children=[wait_for("right", ids["right"])],
        )

        def act(index: int, ids: dict[str, str] = ids) -> Any:
            if index == 0:
                return SessionStore().delete_session(ids["left"])
            return SessionStore().settle_child(ids["right"], "completed", output=1)

        assert run_threads(2, act) == [None, None]
        assert not store.session_exists(ids["left"])
        roles = [message["role"] for message in store.resume(ids["root"]).tool_messages]
        assert roles == ["tool", "tool"]
        assert_healthy(ids["root"], ids["right"])
