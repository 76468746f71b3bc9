"""Alerts: a filter of the list and a threshold; webhooks are told when it fires, and when it is over."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from helix_sessions.admin.companions import look
from helix_sessions.models import Alert, WebhookDelivery
from helix_sessions.store import SessionStore
from helix_sessions.store.outbox import alerts
from tests.admin.places import APP

pytestmark = pytest.mark.django_db

ADD = f"{APP}alert/add/"


@pytest.fixture(autouse=True)
def _hook(store: SessionStore) -> None:
    store.create_webhook("https://hooks.example.com/ops", events=["alert.firing", "alert.resolved"])


def fail(store: SessionStore, session_id: str) -> None:
    store.create_session(session_id, agent_type="support")
    store.compare_and_set_status(session_id, ["active"], "failed", failure_reason="no")


def look_again() -> None:
    Alert.objects.update(next_check_at=timezone.now() - timedelta(seconds=1))
    assert look(timezone.now())


def told() -> list[tuple[str, int]]:
    bodies = [json.loads(row.body) for row in WebhookDelivery.objects.order_by("pk")]
    return [(body["type"], body["data"]["count"]) for body in bodies]


def test_webhooks_are_told_when_it_fires_and_when_it_is_over(store: SessionStore):
    Alert.objects.create(name="Failures", query="status=failed", threshold=2)
    fail(store, "a")
    look_again()
    assert told() == []
    fail(store, "b")
    look_again()
    look_again()
    assert told() == [("alert.firing", 2)]
    assert Alert.objects.get().is_firing
    store.delete_session("a")
    look_again()
    assert told() == [("alert.firing", 2), ("alert.resolved", 1)]
    data = json.loads(WebhookDelivery.objects.order_by("pk")[0].body)["data"]
    assert (data["name"], data["query"], data["threshold"]) == ("Failures", "status=failed", 2)


def test_it_is_looked_at_when_it_is_due_and_by_one(store: SessionStore):
    Alert.objects.create(name="Failures", query="status=failed", every_seconds=60)
    now = timezone.now()
    assert look(now)
    assert not look(now)
    assert look(now + timedelta(seconds=61))
    Alert.objects.update(enabled=False)
    assert not look(now + timedelta(hours=1))


def test_a_late_look_of_a_slow_process_changes_nothing(store: SessionStore):
    Alert.objects.create(name="Failures", query="status=failed")
    now = timezone.now()
    slow = alerts.claim(store.using, now)
    assert slow is not None
    assert look(now + timedelta(minutes=2))
    assert alerts.settle(store.using, slow, 5, now) is None
    assert told() == []


def test_other_webhooks_are_not_told(store: SessionStore):
    store.create_webhook("https://hooks.example.com/runs", events=["run.finished"])
    Alert.objects.create(name="Failures", query="status=failed")
    fail(store, "a")
    look_again()
    assert WebhookDelivery.objects.filter(type="alert.firing").count() == 1


def test_a_filter_that_is_none_any_more_is_said(store: SessionStore, admin_client: Client):
    Alert.objects.create(name="Old", query="nonsense=1")
    assert look(timezone.now())
    assert Alert.objects.get().error
    assert "Could not look" in admin_client.get(f"{APP}alert/").content.decode()


def test_alerts_are_made_in_the_admin(store: SessionStore, admin_client: Client, viewer: Client):
    given: dict[str, Any] = {"name": "Slow", "threshold": 3, "every_seconds": 60, "enabled": "on"}
    for query in ("nonsense=1", "", "p=2"):
        assert admin_client.post(ADD, {**given, "query": query}).status_code == 200, query
    assert admin_client.post(ADD, {**given, "query": "?status=failed&p=2"}).status_code == 302
    assert Alert.objects.get().query == "status=failed"
    assert viewer.get(ADD).status_code == 403
    assert viewer.get(f"{APP}alert/").status_code == 403
