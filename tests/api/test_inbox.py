"""The inbox over HTTP."""

import threading
import time
from typing import Any

import pytest

from helix_sessions.runtime import SessionRunner, TurnContext
from helix_sessions.runtime.scripted import ScriptedAgent
from tests.contract.suspended import approval, suspended
from tests.runner.test_worker import immediate_backend

pytestmark = pytest.mark.django_db(transaction=True)

INPUTS = "/api/sessions/s/inputs/"


def test_admitting(api: Any, session: str, store: Any) -> None:
    response = api.post(INPUTS, {"prompt": {"content": "hello"}, "input_id": "i", "delivery": "queue"})
    assert response.status_code == 201
    receipt = response.json()
    assert receipt == {
        "input_id": "i",
        "session_id": session,
        "prompt": {"content": "hello"},
        "delivery": "queue",
        "admitted_seq": 2,
        "promoted_seq": None,
        "created_at": receipt["created_at"],
    }
    assert (
        api.post(INPUTS, {"prompt": {"content": "hello"}, "input_id": "i", "delivery": "queue"}).json()
        == receipt
    )
    conflict = api.post(INPUTS, {"prompt": "other", "input_id": "i"})
    assert (conflict.status_code, conflict.json()["code"]) == (409, "input_conflict")
    assert api.post(INPUTS, {"prompt": 5}).status_code == 422
    assert api.post(INPUTS, {"prompt": "x", "delivery": "soon"}).status_code == 400
    assert [found.input_id for found in store.list_inputs(session)] == ["i"]


def test_a_full_inbox(api: Any, session: str, settings: Any) -> None:
    settings.HELIX_SESSIONS = {**getattr(settings, "HELIX_SESSIONS", {}), "INBOX_LIMIT": 1}
    assert api.post(INPUTS, {"prompt": "one"}).status_code == 201
    full = api.post(INPUTS, {"prompt": "two"})
    assert (full.status_code, full.json()["code"]) == (409, "inbox_full")


def test_listing_changing_cancelling(api: Any, session: str, store: Any) -> None:
    for number in range(3):
        store.admit_input(session, str(number), input_id=f"i{number}")
    page = api.get(f"{INPUTS}?limit=2").json()
    assert [item["input_id"] for item in page["items"]] == ["i0", "i1"]
    rest = api.get(f"{INPUTS}?limit=2&cursor={page['next_cursor']}").json()
    assert [item["input_id"] for item in rest["items"]] == ["i2"]
    assert api.patch(f"{INPUTS}i0/", {"delivery": "queue"}).json()["delivery"] == "queue"
    assert api.delete(f"{INPUTS}i1/").status_code == 200
    assert api.delete(f"{INPUTS}i1/").json()["code"] == "input_conflict"
    assert api.delete(f"{INPUTS}unknown/").json()["code"] == "input_not_found"
    assert [item["input_id"] for item in api.get(INPUTS).json()["items"]] == ["i0", "i2"]
    everything = api.get(f"{INPUTS}?pending=false").json()["items"]
    assert [item["input_id"] for item in everything] == ["i0", "i1", "i2"]


def test_running_is_scheduled_where_it_can_be(api: Any, session: str, store: Any, settings: Any) -> None:
    first = api.post("/api/sessions/s/run/")
    asked = {"scheduled": True, "runnable_at": first.json()["runnable_at"]}
    assert (first.status_code, first.json()) == (202, asked)
    assert [summary.session_id for summary in store.list_runnable()] == [session]
    for again in ("run/", "run/wake/"):
        assert api.post(f"/api/sessions/s/{again}").json() == asked, "twice is one run"
    assert len(store.get_events(session, types=["run_requested"])) == 1
    pytest.importorskip("helix_sessions.tasks")
    settings.TASKS = {"default": {"BACKEND": immediate_backend()}}
    settings.HELIX_SESSIONS = {"AGENTS": {"test": "tests.runner.agents.polite"}}
    response = api.post("/api/sessions/s/run/")
    assert (response.status_code, response.json()) == (202, asked), "runners are told again"
    assert store.load_state(session).status == "completed"
    store.update_status(session, "failed")
    assert api.post("/api/sessions/s/run/retry/").status_code == 202
    assert store.load_state(session).status == "completed"


def test_stopping_and_waiting(api: Any, session: str, store: Any) -> None:
    idle = api.get("/api/sessions/s/idle/").json()
    assert (idle["idle"], idle["owner"], idle["pending_inputs"]) == (True, None, 0)
    nothing = api.post("/api/sessions/s/run/interrupt/", {"reason": "stop"}).json()
    assert nothing == {"kind": "idle", "run": None, "output": None, "error": None}
    store.create_session("asks", agent_type="test", owner=store.load_state(session).owner_id)
    suspended(store, "asks", approval("call-1"))
    waited = api.post("/api/sessions/asks/run/interrupt/", {"reason": "stop"}).json()
    assert (waited["kind"], waited["run"]["status"]) == ("interrupted", "suspended_client_tool")
    assert store.load_state("asks").interrupt_context == {"reason": "stop"}
    entered = threading.Event()

    def work(turn: TurnContext) -> str:
        entered.set()
        while not turn.interrupted():
            time.sleep(0.01)
        return "stopped"

    def drive() -> None:
        from django.db import connections

        try:
            SessionRunner(ScriptedAgent([work]), owner="worker-1").run(session)
        finally:
            connections.close_all()

    thread = threading.Thread(target=drive)
    thread.start()
    assert entered.wait(20)
    busy = api.get("/api/sessions/s/idle/?timeout=0.1").json()
    assert (busy["idle"], busy["owner"]) == (False, "worker-1")
    outcome = api.post("/api/sessions/s/run/interrupt/", {"reason": "enough", "timeout": 20}).json()
    thread.join(20)
    assert (outcome["kind"], outcome["run"]["status"]) == ("interrupted", "interrupted")
    assert api.get("/api/sessions/s/idle/?timeout=5").json()["idle"] is True


def test_waiting_for_an_input_that_nobody_takes(api: Any, session: str, store: Any) -> None:
    store.admit_input(session, "hello")
    began = time.monotonic()
    assert api.get("/api/sessions/s/idle/?timeout=0.3").json()["idle"] is False
    assert time.monotonic() - began >= 0.3
