"""What webhooks and signals are told: the same moments, from every door, of what was committed."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helix_sessions import models, signals
from helix_sessions.models import WebhookDelivery
from helix_sessions.runtime import SessionRunner
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from helix_sessions.types import WEBHOOK_EVENTS
from tests.outbox.conftest import finish_runs

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = ("run_finished", "call_waiting", "session_failed", "session_expired", "spend_warning")
CALL = {"tool_call_id": "c1", "tool_name": "refund", "arguments": {"cents": 5}, "kind": "approval"}


@pytest.fixture
def heard() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    receivers = {}
    for name in NAMES:

        def receive(sender: Any, signal: Any, _name: str = name, **told: Any) -> None:
            assert sender is models.Session
            assert not connection.in_atomic_block
            found.append((_name, told))

        receivers[name] = receive
        getattr(signals, name).connect(receive)
    yield found
    for name, receive in receivers.items():
        getattr(signals, name).disconnect(receive)


@pytest.fixture
def webhook(store: SessionStore) -> str:
    return store.create_webhook("https://hooks.example.com/x").webhook_id


def told() -> list[tuple[str, dict[str, Any]]]:
    """What waits in the outbox: types and data."""
    found = []
    for row in WebhookDelivery.objects.order_by("pk"):
        body = json.loads(row.body)
        assert set(body) == {"type", "timestamp", "data"}
        assert body["type"] == row.type
        assert body["data"]["session_id"] == row.session_id
        found.append((row.type, body["data"]))
    return found


def suspend(store: SessionStore, session_id: str, run_id: str = "r") -> None:
    store.create_run(session_id, run_id=run_id)
    state = store.load_state(session_id)
    store.suspend(session_id, "client_tool", state=state, run_id=run_id, pending_calls=[CALL])


def test_the_end_of_a_run(store, webhook, heard):
    finish_runs(store, "s", "r")
    seq = store.get_run("s", "r").end_sequence
    assert told() == [("run.finished", {"session_id": "s", "seq": seq, "run_id": "r", "status": "completed"})]
    assert heard == [("run_finished", {"session_id": "s", "run_id": "r", "status": "completed"})]


def test_a_call_that_waits(store, webhook, heard):
    store.create_session("s", agent_type="writer")
    suspend(store, "s")
    seq = store.get_run("s", "r").end_sequence
    call = {"tool_call_id": "c1", "tool_name": "refund", "kind": "approval"}
    status = "suspended_client_tool"
    assert told() == [
        ("run.finished", {"session_id": "s", "seq": seq, "run_id": "r", "status": status}),
        ("call.waiting", {"session_id": "s", "seq": seq, **call}),
    ]
    assert heard == [
        ("run_finished", {"session_id": "s", "run_id": "r", "status": status}),
        ("call_waiting", {"session_id": "s", **call}),
    ]


def test_a_call_of_a_sub_session_is_told_of_the_session_that_waits(store, webhook, heard):
    store.create_session("root", agent_type="writer")
    store.create_session("child", agent_type="writer", parent_session_id="root")
    suspend(store, "child")
    assert [(kind, data["session_id"]) for kind, data in told()] == [
        ("run.finished", "child"),
        ("call.waiting", "child"),
    ]
    assert store.submit_tool_result("child", "c1", approved=True).outcome == "accepted"


def test_a_call_that_a_runner_lets_wait(store, webhook, heard):
    store.create_session("s", agent_type="writer")
    store.admit_input("s", "hello")
    agent = ScriptedAgent([calls("ask")], client_tools=["ask"])
    assert SessionRunner(agent).run("s").kind == "suspended_client_tool"
    [(first, run), (second, call)] = told()
    assert (first, run["status"]) == ("run.finished", "suspended_client_tool")
    assert second == "call.waiting"
    [call_id] = store.load_state("s").pending_client_tool_calls
    assert (call["tool_call_id"], call["seq"]) == (call_id, run["seq"])
    assert [name for name, _ in heard] == ["run_finished", "call_waiting"]
    assert heard[1][1] == {
        "session_id": "s",
        "tool_call_id": call_id,
        "tool_name": "ask",
        "kind": "client_tool",
    }


FAILURES = {
    "update_status": lambda store: store.update_status("s", "failed", error="out of memory"),
    "compare_and_set_status": lambda store: store.compare_and_set_status(
        "s", "active", "failed", error="out of memory"
    ),
    "save_state": lambda store: store.save_state(
        "s", replace(store.load_state("s"), status="failed", error="out of memory")
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure(name, store, webhook, heard):
    store.create_session("s", agent_type="writer")
    FAILURES[name](store)
    [event] = [event for event in store.get_events("s") if event.type == "status_changed"]
    data = {"session_id": "s", "seq": event.seq, "failure_reason": None}
    assert told() == [("session.failed", data)]
    assert "out of memory" not in WebhookDelivery.objects.get().body
    assert heard == [("session_failed", {"session_id": "s", "error": "out of memory"})]
    FAILURES[name](store)
    store.update_status("s", "active")
    store.update_status("s", "completed")
    assert len(told()) == len(heard) == 1


def test_an_expiry_is_no_failure(store, webhook, heard):
    store.create_session("s", agent_type="writer", expires_at=timezone.now() - timedelta(days=1))
    store.expired_session_cleanup(rest=0)
    assert store.load_state("s").status == "failed"
    assert [kind for kind, _ in told()] == ["session.expired"]
    assert heard == [("session_expired", {"session_id": "s"})]


def test_a_warning_of_spend(store, webhook, heard):
    store.create_session("s", agent_type="writer")
    limit = {"scope": "owner", "key": "7", "window": "day"}
    with store._write("s") as work:
        work.event("spend_warning", limit)
    assert told() == [("spend.warning", {"session_id": "s", "seq": 2, **limit})]
    assert heard == [("spend_warning", limit)]


def test_what_a_caller_emits_under_the_same_name_is_no_moment(store, webhook, heard):
    store.create_session("s", agent_type="writer")
    store.emit_event("s", "run_finished", {"run_id": "r", "status": "completed"})
    store.emit_event("s", "status_changed", {"from": "active", "to": "failed"})
    assert told() == []
    assert heard == []


def test_what_is_rolled_back_is_not_told(store, webhook, heard):
    store.create_session("s", agent_type="writer")
    with transaction.atomic():
        finish_runs(store, "s", "r")
        assert len(told()) == 1
        assert heard == []
        transaction.set_rollback(True)
    assert told() == []
    assert heard == []
    with transaction.atomic():
        finish_runs(store, "s", "r")
        assert heard == []
    assert len(told()) == len(heard) == 1


def test_an_error_in_a_receiver_stops_nothing(store, webhook, heard):
    def fail(**told: Any) -> None:
        raise ZeroDivisionError

    signals.run_finished.connect(fail)
    try:
        finish_runs(store, "s", "r")
    finally:
        signals.run_finished.disconnect(fail)
    assert store.get_run("s", "r").status == "completed"
    assert len(told()) == len(heard) == 1


def test_each_webhook_gets_the_types_it_asks_for_under_one_id(store):
    of = {
        each: store.create_webhook("https://a.example/", events=[each]).webhook_id for each in WEBHOOK_EVENTS
    }
    every = store.create_webhook("https://b.example/").webhook_id
    off = store.create_webhook("https://c.example/", enabled=False).webhook_id
    store.create_session("s", agent_type="writer")
    suspend(store, "s")
    store.update_status("s", "failed")
    types = ["run.finished", "call.waiting", "session.failed"]
    rows = WebhookDelivery.objects.order_by("pk")
    assert [row.type for row in rows.filter(webhook_id=every)] == types
    assert not rows.filter(webhook_id=off).exists()
    for kind, webhook_id in of.items():
        assert [row.type for row in rows.filter(webhook_id=webhook_id)] == [kind] * (kind in types), kind
    ids = dict(rows.filter(webhook_id=every).values_list("type", "message_id"))
    assert len(set(ids.values())) == 3
    for row in rows:
        assert row.message_id == ids[row.type]


def test_a_webhook_gets_the_next_event_whoever_made_it(store):
    finish_runs(store, "s", "before")
    models.Webhook.objects.create(url="https://a.example/", events=["run.finished"])
    finish_runs(store, "s", "after")
    assert [data["run_id"] for _, data in told()] == ["after"]


def test_a_step_sends_no_statement_for_webhooks(store, webhook):
    state = store.create_session("s", agent_type="writer")
    with CaptureQueriesContext(connection) as sent:
        store.save_state_and_promote_staging("s", state, [{"role": "user", "content": "hi"}])
        store.emit_event("s", "note")
        store.update_status("s", "completed")
    assert not [query["sql"] for query in sent if "webhook" in query["sql"]]
