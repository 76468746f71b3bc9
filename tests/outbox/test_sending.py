"""What is sent: signed, at least once, again after failures, and to nobody it must not go to."""

import base64
import hashlib
import hmac
import json
import os
import signal
import socket
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from helix_sessions.conf import Conf
from helix_sessions.models import Webhook, WebhookDelivery
from helix_sessions.runtime.companion import WebhookSender
from helix_sessions.store import SessionStore
from helix_sessions.store.outbox import deliveries, sending
from tests.outbox.conftest import Request, finish_runs
from tests.parallel import Worker, run_processes

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_private_allowed")]

AGENTS = {"writer": "tests.runner.agents.Noting"}


def verified(request: Request, secret: str, *, now: float) -> Any:
    """The payload, checked as https://www.standardwebhooks.com says: independent of what signs."""
    headers = request.headers
    message_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    assert abs(now - int(timestamp)) <= 5 * 60
    key = base64.b64decode(secret.split("_", 1)[1])
    signed = b".".join([message_id.encode(), timestamp.encode(), request.body.encode()])
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    versions = [each.split(",", 1) for each in headers["webhook-signature"].split(" ")]
    assert any(version == "v1" and hmac.compare_digest(given, expected) for version, given in versions), (
        headers
    )
    return json.loads(request.body)


def the_delivery() -> WebhookDelivery:
    return WebhookDelivery.objects.get()


def test_a_message_is_signed_and_says_what_happened(store, receiver):
    made = store.create_webhook(receiver.url + "?of=us", events=["run.finished"])
    finish_runs(store, "s", "r")
    assert store.send_webhooks() == 1
    [request] = receiver.requests
    payload = verified(request, made.secret, now=time.time())
    run = store.get_run("s", "r")
    assert payload == {
        "type": "run.finished",
        "timestamp": run.ended_at.isoformat().replace("+00:00", "Z"),
        "data": {"session_id": "s", "seq": run.end_sequence, "run_id": "r", "status": "completed"},
    }
    assert request.path == "/hook?of=us"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-id"] == the_delivery().message_id
    [delivery] = store.list_webhook_deliveries(made.webhook_id).items
    assert (delivery.state, delivery.attempts, delivery.status_code) == ("delivered", 1, 204)
    assert store.send_webhooks() == 0


def test_a_given_secret_signs(store, receiver):
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    store.create_webhook(receiver.url, secret=secret)
    finish_runs(store, "s", "r")
    store.send_webhooks()
    verified(receiver.requests[0], secret, now=time.time())
    with pytest.raises(AssertionError):
        verified(receiver.requests[0], "whsec_" + "A" * 32, now=time.time())


def test_what_is_due_goes_out_in_order(store, receiver):
    store.create_webhook(receiver.url)
    finish_runs(store, "s", *(f"r{number}" for number in range(5)))
    assert store.send_webhooks(limit=3) == 3
    assert store.send_webhooks() == 2
    seqs = [json.loads(request.body)["data"]["seq"] for request in receiver.requests]
    assert seqs == sorted(seqs)
    assert len(set(receiver.ids)) == 5


def test_retries_follow_the_schedule_and_end(store, receiver, clock):
    webhook_id = store.create_webhook(receiver.url).webhook_id
    finish_runs(store, "s", "r")
    receiver.answer = lambda request: 500
    assert sum(deliveries.RETRY_SECONDS[:2]) <= 60
    for number, seconds in enumerate(deliveries.RETRY_SECONDS, 1):
        assert store.send_webhooks() == 1
        assert store.send_webhooks() == 0
        [delivery] = store.list_webhook_deliveries(webhook_id).items
        assert (delivery.state, delivery.attempts, delivery.status_code) == ("waiting", number, 500)
        assert delivery.due_at - clock.now == timedelta(seconds=seconds)
        clock.advance(seconds - 1)
        assert store.send_webhooks() == 0
        clock.advance(1)
    assert store.send_webhooks() == 1
    [delivery] = store.list_webhook_deliveries(webhook_id, state="failed").items
    assert (delivery.attempts, delivery.due_at, delivery.error) == (9, None, "The answer was 500.")
    clock.advance(365 * 24 * 3600)
    assert store.send_webhooks() == 0
    assert len(receiver.ids) == 9
    assert len(set(receiver.ids)) == 1


def test_a_retry_is_signed_anew_and_otherwise_the_same(store, receiver, clock):
    made = store.create_webhook(receiver.url)
    finish_runs(store, "s", "r")
    receiver.answer = lambda request: 503 if len(receiver.requests) == 1 else 200
    store.send_webhooks()
    clock.advance(3600)
    store.send_webhooks()
    first, second = receiver.requests
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])
    assert int(second.headers["webhook-timestamp"]) - int(first.headers["webhook-timestamp"]) == 3600
    verified(second, made.secret, now=clock.now.timestamp())
    assert the_delivery().delivered_at == clock.now


def test_a_receiver_that_is_away_is_tried_again(store, receiver, clock):
    webhook_id = store.create_webhook("http://127.0.0.1:1/").webhook_id
    finish_runs(store, "s", "r")
    store.send_webhooks()
    [delivery] = store.list_webhook_deliveries(webhook_id).items
    assert delivery.state == "waiting"
    assert "ConnectionRefusedError" in delivery.error
    store.update_webhook(webhook_id, url=receiver.url)
    clock.advance(5)
    store.send_webhooks()
    assert len(receiver.requests) == 1
    assert the_delivery().error is None


def test_one_that_is_slow_does_not_keep_others_waiting(store, receiver, monkeypatch):
    monkeypatch.setattr(sending, "ATTEMPT_SECONDS", 3)
    monkeypatch.setattr(sending, "_TURN_SECONDS", 2.5)
    over = threading.Event()
    slow = store.create_webhook(f"{receiver.url}/slow").webhook_id
    store.create_webhook(f"{receiver.url}/quick")

    def answer(request: Request) -> int:
        if request.path.endswith("slow"):
            over.wait(60)
        return 200

    receiver.answer = answer
    finish_runs(store, "s", "r1", "r2", "r3")
    try:
        assert store.send_webhooks() == 4
    finally:
        over.set()
    assert sum(request.path.endswith("quick") for request in receiver.requests) == 3
    states = [each.state for each in store.list_webhook_deliveries(slow).items]
    assert states == ["waiting"] * 3


def test_redirects_are_not_followed(store, receiver):
    store.create_webhook(receiver.url)
    finish_runs(store, "s", "r")
    receiver.answer = lambda request: 302
    receiver.headers = {"Location": receiver.url + "/elsewhere"}
    store.send_webhooks()
    assert [request.path for request in receiver.requests] == ["/hook"]
    assert the_delivery().status_code == 302
    assert the_delivery().delivered_at is None


def test_a_receiver_that_is_gone_gets_nothing_more(store, receiver):
    webhook_id = store.create_webhook(receiver.url).webhook_id
    finish_runs(store, "s", "r1", "r2")
    receiver.answer = lambda request: 410
    assert store.send_webhooks() == 1
    assert not store.get_webhook(webhook_id).enabled
    finish_runs(store, "s", "r3")
    assert store.send_webhooks() == 0
    assert WebhookDelivery.objects.count() == 2


def test_what_waits_for_a_disabled_webhook_is_sent_when_it_is_enabled(store, receiver):
    webhook_id = store.create_webhook(receiver.url).webhook_id
    finish_runs(store, "s", "r")
    store.update_webhook(webhook_id, enabled=False)
    assert store.send_webhooks() == 0
    store.update_webhook(webhook_id, enabled=True)
    assert store.send_webhooks() == 1


def test_a_replay_is_sent_again_under_the_same_id(store, receiver, clock):
    webhook_id = store.create_webhook(receiver.url).webhook_id
    finish_runs(store, "s", "r")
    store.send_webhooks()
    message_id = the_delivery().message_id
    replayed = store.replay_webhook_delivery(webhook_id, message_id)
    assert (replayed.state, replayed.attempts, replayed.delivered_at) == ("waiting", 0, None)
    store.send_webhooks()
    assert receiver.ids == [replayed.message_id] * 2
    receiver.answer = lambda request: 500
    store.replay_webhook_delivery(webhook_id, message_id)
    for seconds in (*deliveries.RETRY_SECONDS, 0):
        store.send_webhooks()
        clock.advance(seconds)
    assert store.list_webhook_deliveries(webhook_id).items[0].state == "failed"
    receiver.answer = lambda request: 200
    store.replay_webhook_delivery(webhook_id, message_id)
    store.send_webhooks()
    assert store.list_webhook_deliveries(webhook_id).items[0].state == "delivered"


def test_old_deliveries_are_forgotten(store, receiver, clock):
    webhook_id = store.create_webhook(receiver.url).webhook_id
    finish_runs(store, "s", "r1")
    store.send_webhooks()
    clock.advance(8 * 24 * 3600)
    finish_runs(store, "s", "r2")
    store.send_webhooks()
    [delivery] = store.list_webhook_deliveries(webhook_id).items
    assert '"run_id":"r2"' in delivery.body


def test_private_addresses_are_refused_when_something_is_sent(store, receiver, monkeypatch):
    """Whatever the name stood for when the webhook was made."""
    port = receiver.url.split(":")[2].split("/")[0]
    webhook_id = store.create_webhook(receiver.url).webhook_id
    monkeypatch.setattr(Conf, "WEBHOOK_ALLOW_PRIVATE", False)
    for url in (receiver.url, f"https://127.0.0.1:{port}/", f"https://internal.example:{port}/"):
        Webhook.objects.update(url=url)
        places = [(2, 1, 6, "", ("127.0.0.1", int(port)))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *a, _places=places, **k: _places)
        finish_runs(store, "s", url)
        store.send_webhooks()
        [delivery] = store.list_webhook_deliveries(webhook_id, limit=1).items
        assert delivery.error in (
            "Webhooks are sent by https.",
            "'127.0.0.1' is an address of a private network.",
            "'internal.example' is an address of a private network.",
        ), url
    assert receiver.requests == []


def test_no_secret_is_logged_or_kept_in_errors(store, receiver, caplog):
    made = store.create_webhook(receiver.url + "?token=hidden")
    finish_runs(store, "s", "r")
    receiver.answer = lambda request: 500
    with caplog.at_level("DEBUG", logger="helix_sessions"):
        store.send_webhooks()
    assert made.webhook_id in caplog.text
    for hidden in (made.secret, made.secret.removeprefix("whsec_"), "token=hidden"):
        assert hidden not in caplog.text
        assert hidden not in str(the_delivery().error)
    assert made.secret not in repr(made)


def send_and_die(url: str) -> None:
    """A sender that is killed when the receiver has the message, before that is noted."""
    real = sending.post

    def post(*message: str) -> int:
        real(*message)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    Conf.WEBHOOK_ALLOW_PRIVATE = True
    sending.post = post  # type: ignore[assignment]
    SessionStore().send_webhooks()


def test_a_sender_killed_after_it_sent_is_made_good_under_the_same_id(store, receiver, clock):
    store.create_webhook(receiver.url)
    finish_runs(store, "s", "r")
    worker = Worker(send_and_die, receiver.url)
    worker.wait_until_ready()
    worker.go()
    worker.process.join(60)
    assert worker.process.exitcode == -signal.SIGKILL
    assert len(receiver.requests) == 1
    assert the_delivery().delivered_at is None
    assert store.send_webhooks() == 0
    clock.advance(120)
    assert store.send_webhooks() == 1
    assert len(set(receiver.ids)) == 1
    assert len(receiver.requests) == 2
    assert the_delivery().delivered_at == clock.now


def send_all(index: int) -> int:
    Conf.WEBHOOK_ALLOW_PRIVATE = True
    store, made = SessionStore(), 0
    while attempts := store.send_webhooks(limit=2):
        made += attempts
    return made


def test_senders_side_by_side_send_each_once(store, receiver):
    store.create_webhook(receiver.url)
    store.create_webhook(receiver.url + "/2")
    finish_runs(store, "s", *(f"r{number}" for number in range(20)))
    attempts = run_processes(3, send_all)
    assert sum(attempts) == 40, attempts  # type: ignore[arg-type]
    sent = [(request.path, request.headers["webhook-id"]) for request in receiver.requests]
    assert len(sent) == len(set(sent)) == 40
    assert not WebhookDelivery.objects.filter(delivered_at=None).exists()


def test_a_late_outcome_does_not_undo_a_replay(store, receiver, clock):
    webhook_id = store.create_webhook(receiver.url).webhook_id
    finish_runs(store, "s", "r")
    claimed = deliveries.claim("default", webhook_id, clock.now)
    assert claimed is not None
    clock.advance(1)
    replayed = store.replay_webhook_delivery(webhook_id, claimed.message_id)
    deliveries.settle("default", claimed, clock.now, 204, None)
    assert store.list_webhook_deliveries(webhook_id).items == [replayed]


@override_settings(HELIX_SESSIONS={"AGENTS": AGENTS, "WEBHOOK_ALLOW_PRIVATE": True})
def test_run_sessions_sends(store, receiver):
    made = store.create_webhook(receiver.url, events=["run.finished"])
    store.create_session("s", agent_type="writer")
    store.admit_input("s", "hello")
    call_command("run_sessions", once=True, poll=0.05, verbosity=0)
    payload = verified(receiver.requests[0], made.secret, now=time.time())
    assert payload["data"]["status"] == "completed"
    assert not WebhookDelivery.objects.filter(delivered_at=None).exists()


def test_what_a_worker_has_driven_is_sent_at_once(store, receiver):
    store.create_webhook(receiver.url)
    with WebhookSender(None) as sender:
        finish_runs(store, "s", "r")
        sender.look()
        deadline = time.monotonic() + 30
        while not receiver.requests:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_claiming_skips_what_others_hold(store, receiver, engine):
    if engine != "postgresql":
        return
    webhook_id = store.create_webhook(receiver.url).webhook_id
    finish_runs(store, "s", "r")
    with CaptureQueriesContext(connection) as sent:
        store.send_webhooks()
    assert any("SKIP LOCKED" in query["sql"] for query in sent), webhook_id
