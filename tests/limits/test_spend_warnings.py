"""At a share of the limit there is one warning in each window: an event, a signal and a webhook."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from helix_sessions import models
from helix_sessions.runtime import SessionRunner
from helix_sessions.runtime.scripted import ScriptedAgent
from helix_sessions.store import SessionStore
from tests.limits.conftest import costs, working

pytestmark = pytest.mark.django_db(transaction=True)


def spend(store: SessionStore, usd: float, tokens: int = 0) -> None:
    store.admit_input("s", "hello")
    SessionRunner(ScriptedAgent(costs(usd, tokens)), store=store).run("s")


def warnings(store: SessionStore, session_id: str = "s") -> list[Any]:
    return [event.data for event in store.get_events(session_id, types=["spend_warning"])]


def test_one_in_each_window(
    store: SessionStore, ada: Any, at: Callable[[str], datetime], warned: list[Any]
) -> None:
    key = str(ada.pk)
    store.create_webhook("https://hooks.example.com/x", events=["spend.warning"])
    store.set_spend_limit(scope="owner", key=key, window="day", usd=1, warn_at=0.5)
    store.set_spend_limit(scope="owner", key=key, window="month", tokens=100, warn_at=0.9)
    store.set_spend_limit(scope="all", window="day", usd=0.8)
    at("2026-05-01T10:00")
    store.create_session("s", agent_type="writer", owner=ada)
    steps = [
        ("2026-05-01T10:00", (0.4, 0), []),
        ("2026-05-01T11:00", (0.1, 0), [("owner", key, "day")]),
        ("2026-05-01T12:00", (0.1, 0), []),
        ("2026-05-02T00:00", (0.4, 80), []),
        ("2026-05-02T00:00", (0.4, 10), [("owner", key, "day"), ("owner", key, "month")]),
        ("2026-05-03T00:00", (0.6, 0), [("owner", key, "day")]),
        ("2026-06-01T00:00", (0.6, 95), [("owner", key, "day"), ("owner", key, "month")]),
    ]
    told: list[Any] = []
    for time, (usd, tokens), expected in steps:
        at(time)
        spend(store, usd, tokens)
        told += expected
        assert warned == told, time
    assert [(each["scope"], each["key"], each["window"]) for each in warnings(store)] == told
    assert all(set(each) == {"scope", "key", "window", "warn_at"} for each in warnings(store))
    sent = [json.loads(body) for body in models.WebhookDelivery.objects.values_list("body", flat=True)]
    assert {body["type"] for body in sent} == {"spend.warning"}
    assert len(sent) == len(told)
    assert {name: sent[0]["data"][name] for name in ("session_id", "scope", "key", "window")} == {
        **{"session_id": "s", "scope": "owner", "key": key, "window": "day"},
    }


def test_from_every_door(store: SessionStore, warned: list[Any]) -> None:
    """Reports of other drivers, and limits that were made when the share was reached already. A warning does
    not raise the version, for a driver that goes by it."""
    store.create_session("s", agent_type="writer")
    store.set_spend_limit(scope="agent_type", key="writer", window="total", usd=1, warn_at=0.8)
    run = store.create_run("s")
    version = store.load_state("s").version
    store.update_run_status("s", run.run_id, "running", usage={"cost": 0.9}, expected_version=version)
    assert warned == [("agent_type", "writer", "total")]
    store.update_run_status("s", run.run_id, "completed", expected_version=version + 1)
    store.set_spend_limit(scope="all", window="total", usd=1, warn_at=0.8)
    assert len(warned) == 1
    spend(store, 0)
    assert warned[1:] == [("all", None, "total")]
    assert len(warnings(store)) == 2


def test_a_warning_and_the_end_at_once(store: SessionStore, warned: list[Any]) -> None:
    """A turn that takes the whole limit warns of it, and the run ends."""
    store.create_session("s", agent_type="writer")
    store.set_spend_limit(scope="all", window="day", usd=1, warn_at=1)
    store.admit_input("s", "hello")
    agent = working(3, 5)
    assert SessionRunner(agent, store=store).run("s").error["code"] == "spend_limit"
    assert len(agent.turns) == 1
    assert warned == [("all", None, "day")]


def test_many_at_once(store: SessionStore, run_threads: Any, warned: list[Any]) -> None:
    """However many sessions reach the share together, one of them tells of it."""
    store.set_spend_limit(scope="all", window="day", usd=8, warn_at=0.5)
    for number in range(8):
        store.create_session(f"s{number}", agent_type="writer")

    def work(number: int) -> None:
        for _ in range(3):
            run = SessionStore().create_run(f"s{number}").run_id
            SessionStore().update_run_status(f"s{number}", run, "completed", usage={"cost": 1})

    assert run_threads(8, work) == [None] * 8
    assert warned == [("all", None, "day")]
    assert sum(len(warnings(store, f"s{number}")) for number in range(8)) == 1
