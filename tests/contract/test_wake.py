"""Recovery after a crash: section 3 of the contract."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.messages.repairs import repairs
from helix_sessions.store import SessionStore
from helix_sessions.store.runs import rescue
from helix_sessions.transcripts import INTERRUPTED, open_tool_calls
from helix_sessions.types import Wake

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def session(store: SessionStore) -> str:
    store.create_session("s", agent_type="a")
    return "s"


def calling(*calls: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": call, "name": "look", "arguments": {"q": 1}} for call in calls],
    }


def log(store: SessionStore, after: int) -> list[tuple[str, Any]]:
    return [(event.type, event.data) for event in store.get_events("s", after + 1)]


def test_a_healthy_session_is_only_marked(store: SessionStore) -> None:
    version = store.load_state("s").version

    assert store.wake("s") == Wake(prior_head=1, head_seq=2)
    assert store.wake("s") == Wake(prior_head=2, head_seq=3)

    assert log(store, 1) == [("session_woken", {"prior_head": 1}), ("session_woken", {"prior_head": 2})]
    assert store.load_state("s").version == version


def test_a_worker_that_died_in_mid_run_is_one_wake_away_from_a_valid_transcript(store: SessionStore) -> None:
    store.create_run("s", run_id="r")
    store.append_messages("s", [{"role": "user", "content": "go"}, calling("c1", "c2", "c3")])
    for call in ("c1", "c2"):
        store.emit_event("s", "tool_called", {"tool_call_id": call, "name": "look"})
    store.emit_event("s", "tool_responded", {"tool_call_id": "c1", "result": 5})
    store.append_messages("s", [{"role": "tool", "tool_call_id": "c1", "content": 5}])
    before = store.load_state("s")

    woken = store.wake("s")

    error = {"tool_name": "look", "error": INTERRUPTED, "code": "outcome_unknown"}
    message = {"role": "tool", "tool_name": "look", "content": INTERRUPTED, "is_error": True}
    assert log(store, before.head_seq) == [
        ("tool_error", {"tool_call_id": "c2", **error}),
        ("tool_message", {"tool_call_id": "c2", **message}),
        ("tool_error", {"tool_call_id": "c3", **error}),
        ("tool_message", {"tool_call_id": "c3", **message}),
        ("run_finished", {"run_id": "r", "status": "interrupted"}),
        ("session_woken", {"prior_head": before.head_seq}),
    ]
    after = store.load_state("s")
    assert (woken.prior_head, woken.head_seq) == (before.head_seq, after.head_seq)
    assert (after.version, after.status) == (before.version + 1, before.status)
    assert open_tool_calls(store.get_messages("s").messages) == []
    run = store.get_run("s", "r")
    assert (run.status, run.end_sequence) == ("interrupted", after.head_seq - 1)
    assert store.get_current_run("s") is None


def test_doing_it_twice_repairs_nothing_twice(store: SessionStore) -> None:
    store.create_run("s")
    store.append_messages("s", [calling("c1")])
    store.emit_event("s", "tool_called", {"tool_call_id": "c2"})
    store.wake("s")
    version, count = store.load_state("s").version, store.get_message_count("s")

    again = store.wake("s")

    assert log(store, again.prior_head) == [("session_woken", {"prior_head": again.prior_head})]
    assert (store.load_state("s").version, store.get_message_count("s")) == (version, count)


def test_a_logged_call_without_a_message_fails_too(store: SessionStore) -> None:
    store.emit_event("s", "tool_called", {"tool_call_id": "c1", "name": "look"})

    store.wake("s")

    assert [kind for kind, _ in log(store, 2)] == ["tool_error", "tool_message", "session_woken"]


def test_a_logged_result_reaches_the_transcript(store: SessionStore) -> None:
    store.append_messages("s", [calling("c1")])
    store.emit_event("s", "tool_responded", {"tool_call_id": "c1", "result": {"n": 1}})

    store.wake("s")

    assert store.get_messages("s").messages[-1] == {
        "role": "tool",
        "tool_call_id": "c1",
        "tool_name": "look",
        "content": {"n": 1},
    }
    assert "tool_error" not in [kind for kind, _ in log(store, 0)]


def test_calls_that_wait_for_a_client_or_a_child_are_left_alone(store: SessionStore) -> None:
    from dataclasses import replace

    store.append_messages("s", [calling("client", "child", "lost")])
    waiting = replace(
        store.load_state("s"),
        pending_client_tool_calls={"client": {"kind": "client_tool"}},
        suspended_awaiting_children={"child": {"sub_session_id": "x"}},
    )
    store.save_state("s", waiting)

    store.wake("s")

    assert [call["id"] for call in open_tool_calls(store.get_messages("s").messages)] == ["client", "child"]


def test_a_truncated_call_is_not_answered(store: SessionStore) -> None:
    store.append_messages("s", [{"role": "user", "content": "go"}, calling("c1")])
    store.emit_event("s", "tool_called", {"tool_call_id": "c1"})
    store.truncate_messages("s", 1)

    store.wake("s")

    assert store.get_messages("s").messages == [{"role": "user", "content": "go"}]


def test_a_long_history_is_not_read(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescue, "MESSAGES_LOOKED_AT", 20)
    store.append_messages("s", [calling(f"old-{n}") for n in range(300)])
    store.append_messages("s", [calling("c1"), {"role": "tool", "tool_call_id": "c1", "content": 1}] * 10)
    store.append_messages("s", [calling("c2")])
    read: list[int] = []

    def counted(events: Any, waiting: Any) -> Any:
        found = list(events)
        read.append(len(found))
        return repairs(found, waiting)

    monkeypatch.setattr(rescue, "repairs", counted)
    with CaptureQueriesContext(connection) as captured:
        store.wake("s")

    assert read == [20]
    assert len([query for query in captured if query["sql"].startswith(("SELECT", "WITH", "PREPARE"))]) <= 5
    assert [
        call["id"] for call in open_tool_calls(store.get_messages("s").messages) if call["id"] == "c2"
    ] == []


def test_an_unknown_session(store: SessionStore) -> None:
    with pytest.raises(SessionNotFound):
        store.wake("nobody")


def test_attach_creates_once_and_says_where_the_log_is(store: SessionStore) -> None:
    assert store.attach("new") == 1
    store.emit_event("new", "ticked")
    assert store.attach("new") == 2
    store.detach("new")
    assert store.attach("new") == 2


def test_calls_in_blocks_of_content_are_repaired_too(store: SessionStore) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    store.append_messages("s", [{"role": "assistant", "content": [use]}])
    store.wake("s")

    assert open_tool_calls(store.get_messages("s").messages) == []
    assert store.get_messages("s").messages[-1]["tool_call_id"] == "c1"


def test_results_in_blocks_of_content_are_results(store: SessionStore) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    done = {"type": "tool_result", "tool_use_id": "c1", "content": "there"}
    store.append_messages("s", [{"role": "assistant", "content": [use]}, {"role": "user", "content": [done]}])
    store.wake("s")

    assert store.get_message_count("s") == 2
