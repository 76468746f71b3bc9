"""Webhooks in the admin."""

import pytest
from django.contrib.auth.models import Permission

from helix_sessions.models import Webhook, WebhookDelivery

pytestmark = pytest.mark.django_db

LIST = "/admin/helix_sessions/webhook/"
DELIVERIES = "/admin/helix_sessions/webhookdelivery/"
URL = "https://hooks.example.com/agents"


def staff(django_user_model, name, *permissions):
    user = django_user_model.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


@pytest.fixture
def operator(client, django_user_model):
    client.force_login(staff(django_user_model, "op", "view_webhook", "change_webhook"))
    return client


def test_a_webhook_is_made_changed_and_deleted_and_its_secret_shown_once(operator, store):
    given = {"url": URL, "events": ["call.waiting"], "enabled": "on"}
    made = operator.post(f"{LIST}add/", given, follow=True)
    [webhook] = store.list_webhooks()
    assert (webhook.url, webhook.events, webhook.enabled) == (URL, ("call.waiting",), True)
    secret = Webhook.objects.get().secret
    assert secret in made.content.decode()
    change = f"{LIST}{webhook.webhook_id}/change/"
    for page in (LIST, change, f"{LIST}{webhook.webhook_id}/history/"):
        text = operator.get(page).content.decode()
        assert "whsec_" not in text.replace("whsec_ and 24", ""), page
        assert secret not in text
    changed = operator.post(change, {"url": URL, "events": [], "secret": "whsec_x"})
    assert changed.status_code == 302, changed.content.decode()
    [webhook] = store.list_webhooks()
    assert (webhook.events, webhook.enabled) == ((), False)
    assert Webhook.objects.get().secret == secret
    assert operator.post(f"{LIST}{webhook.webhook_id}/delete/", {"post": "yes"}).status_code == 302
    assert store.list_webhooks() == []


def test_a_given_secret_is_not_shown_again(operator, store):
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    page = operator.post(f"{LIST}add/", {"url": URL, "secret": secret}, follow=True)
    assert secret not in page.content.decode()
    assert Webhook.objects.get().secret == secret


def test_what_is_no_webhook_is_said(operator, store):
    for given in ({"url": "http://a.example/"}, {"url": "https://10.0.0.1/"}, {"url": URL, "secret": "x"}):
        page = operator.post(f"{LIST}add/", given)
        assert page.status_code == 200
        assert "errorlist" in page.content.decode(), given
    assert store.list_webhooks() == []


def test_deliveries_are_seen_and_replayed(operator, store):
    webhook = store.create_webhook(URL)
    store.create_session("s-17", agent_type="test")
    store.update_status("s-17", "failed")
    row = WebhookDelivery.objects.get()
    WebhookDelivery.objects.update(due_at=None, attempts=9, error="The answer was 500.")
    for page in (
        *(f"{LIST}{webhook.webhook_id}/change/", DELIVERIES, f"{DELIVERIES}?state=failed"),
        *(f"{DELIVERIES}?q=s-17", f"{DELIVERIES}{row.pk}/change/"),
    ):
        text = operator.get(page).content.decode()
        assert "s-17" in text, page
        assert "The answer was 500." in text, page
    assert "s-17" not in operator.get(f"{DELIVERIES}?state=delivered").content.decode()
    chosen = {"action": "replay", "_selected_action": [row.pk]}
    assert operator.post(DELIVERIES, chosen).status_code == 302
    [delivery] = store.list_webhook_deliveries(webhook.webhook_id).items
    assert (delivery.state, delivery.attempts) == ("waiting", 0)


def test_who_may_only_look_changes_and_replays_nothing(client, django_user_model, store):
    client.force_login(staff(django_user_model, "clerk", "view_webhook"))
    webhook = store.create_webhook(URL)
    store.create_session("s", agent_type="test")
    store.update_status("s", "failed")
    row, [delivery] = WebhookDelivery.objects.get(), store.list_webhook_deliveries(webhook.webhook_id).items
    change = f"{LIST}{webhook.webhook_id}/change/"
    assert client.get(LIST).status_code == client.get(change).status_code == 200
    assert webhook.secret not in client.get(change).content.decode()
    assert client.post(f"{LIST}add/", {"url": URL}).status_code == 403
    assert client.post(change, {"url": "https://evil.example/"}).status_code == 403
    assert client.post(f"{LIST}{webhook.webhook_id}/delete/", {"post": "yes"}).status_code == 403
    client.post(DELIVERIES, {"action": "replay", "_selected_action": [row.pk]})
    assert store.list_webhook_deliveries(webhook.webhook_id).items == [delivery]
    client.force_login(staff(django_user_model, "nobody"))
    assert client.get(LIST).status_code == client.get(DELIVERIES).status_code == 403
