"""Every kind of wait at once, three sub-agents deep, answered at the root."""

from itertools import pairwise

import pytest

from helix_sessions.exceptions import StillWaiting, UnknownToolCall
from helix_sessions.store import SessionStore
from tests.contract.suspended import (
    approval,
    asked,
    calling,
    child,
    error,
    messages,
    result,
    suspend,
    wait_for,
)
from tests.invariants import assert_invariants, assert_valid_transcript
from tests.rows import each

pytestmark = pytest.mark.django_db

CHAIN = ("root", "one", "two", "three")


@pytest.fixture
def chain(store: SessionStore) -> SessionStore:
    """`three` asks a client and for two approvals beside a tool of the server; those above wait for it."""
    store.begin_turn("root", message="hello")
    for parent, below in pairwise(CHAIN):
        child(store, parent, below, f"call-{below}")
    suspend(
        store,
        "three",
        asked("client"),
        approval("yes", approval_id="y"),
        approval("no"),
        kind="step_partial",
        append_messages=[calling("server", "no", "client", "yes"), result("server")],
    )
    for parent, below in reversed(list(pairwise(CHAIN))):
        call_id = f"call-{below}"
        suspend(
            store,
            parent,
            kind="awaiting_children",
            append_messages=[calling(call_id)],
            awaiting_children=[wait_for(call_id, below)],
        )
    return store


def test_all_the_way_down_and_up(chain: SessionStore):
    statuses = [chain.list_runs(key).items[0].status for key in CHAIN]
    assert statuses == ["suspended_awaiting_children"] * 3 + ["suspended_step_partial"]
    assert chain.load_state("root").client_tool_call_ownership == dict.fromkeys(
        ("client", "yes", "no"), "three"
    )
    for answer, remaining in (
        ({"tool_call_id": "yes", "approved": True, "approval_id": "y"}, 2),
        ({"tool_call_id": "client", "result": {"x": None}}, 1),
        ({"tool_call_id": "no", "approved": False, "reason": "too much"}, 0),
    ):
        submission = chain.submit_tool_result("root", **answer)
        assert (submission.outcome, submission.owner_session_id) == ("accepted", "three")
        assert submission.remaining == remaining

    resumed = chain.resume("three")
    assert resumed.tool_messages == [error("no", "too much"), result("client", {"x": None})]
    assert [entry["tool_call_id"] for entry in resumed.approved] == ["yes"]
    chain.append_messages("three", [result("yes", "paid")])
    assert_valid_transcript("three")
    assert set(chain.load_state("root").completed_client_tool_calls or {}) == {"client", "yes", "no"}

    for below, parent in (("three", "two"), ("two", "one"), ("one", "root")):
        with pytest.raises(StillWaiting) as waiting:
            chain.resume(parent)
        assert waiting.value.sub_session_ids == (below,)
        run = chain.get_current_run(below)
        assert run is not None
        chain.update_run_status(below, run.run_id, "completed")
        chain.settle_child(below, "completed", output=f"from {below}")
        [message] = chain.resume(parent).tool_messages
        assert message["content"] == f"from {below}"
        assert_valid_transcript(parent)
    assert [message["role"] for message in messages(chain, "root")] == ["user", "assistant", "tool"]
    assert [len(chain.list_runs(key).items) for key in CHAIN] == [2, 2, 2, 2]
    for key in CHAIN:
        assert_invariants(key)


def test_a_failure_goes_up_as_an_error(chain: SessionStore):
    chain.settle_child("three", "failed", error="lost")
    [message] = chain.resume("two").tool_messages
    assert (message["content"], message["is_error"]) == ("lost", True)
    assert_valid_transcript("two")


@each("above", CHAIN[1:3])
def test_only_the_root_and_the_owner_are_asked(chain: SessionStore, above: str):
    """A session between them knows nothing of the calls below it."""
    with pytest.raises(UnknownToolCall):
        chain.submit_tool_result(above, "client", result=1)
    assert chain.submit_tool_result("three", "client", result=1).outcome == "accepted"
