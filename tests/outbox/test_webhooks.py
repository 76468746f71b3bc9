"""Webhooks as rows: kept for all owners, and what becomes of deliveries when a session goes."""

import pytest

from helix_sessions.exceptions import InvalidInput, WebhookNotFound
from helix_sessions.models import WebhookDelivery
from helix_sessions.store import SessionStore
from tests.outbox.conftest import finish_runs

pytestmark = pytest.mark.django_db(transaction=True)

URL = "https://hooks.example.com/"


def test_a_store_of_one_owner_has_no_webhooks(store, django_user_model):
    webhook_id = store.create_webhook(URL).webhook_id
    own = SessionStore(owned_by=django_user_model.objects.create_user("ada"))
    for call in (
        lambda: own.create_webhook(URL),
        lambda: own.list_webhooks(),
        lambda: own.get_webhook(webhook_id),
        lambda: own.update_webhook(webhook_id, enabled=False),
        lambda: own.delete_webhook(webhook_id),
        lambda: own.list_webhook_deliveries(webhook_id),
        lambda: own.replay_webhook_delivery(webhook_id, "msg_1"),
    ):
        with pytest.raises(InvalidInput):
            call()


def test_a_deleted_webhook_takes_its_deliveries_along(store):
    kept, gone = store.create_webhook(URL).webhook_id, store.create_webhook(URL).webhook_id
    finish_runs(store, "s", "r")
    store.delete_webhook(gone)
    assert [row.webhook_id for row in WebhookDelivery.objects.all()] == [kept]
    for call in (store.get_webhook, store.delete_webhook, store.list_webhook_deliveries):
        with pytest.raises(WebhookNotFound):
            call(gone)


def test_a_deleted_session_is_still_told_of_and_an_erased_one_is_not(store, django_user_model):
    store.create_webhook(URL)
    ada = django_user_model.objects.create_user("ada")
    for session_id in ("deleted", "erased"):
        store.create_session(session_id, agent_type="writer", owner=ada)
        finish_runs(store, session_id, "r")
    store.delete_session("deleted")
    assert WebhookDelivery.objects.count() == 2
    store.erase_user(owner=ada, dry_run=True)
    assert WebhookDelivery.objects.count() == 2
    store.erase_user(owner=ada)
    assert [row.session_id for row in WebhookDelivery.objects.all()] == ["deleted"]
