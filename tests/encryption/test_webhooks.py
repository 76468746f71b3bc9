"""The secrets of webhooks at rest."""

import pytest
from django.db import connection

from helix_sessions.exceptions import ContentUnreadable
from helix_sessions.models import Webhook

pytestmark = pytest.mark.django_db(transaction=True)

URL = "https://hooks.example.com/"


def stored() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute('SELECT "secret" FROM helix_sessions_webhook ORDER BY "webhook_id"')
        return [row[0] for row in cursor.fetchall()]


def test_a_secret_is_sealed_whoever_saves_it(store):
    made = store.create_webhook(URL)
    plain = Webhook.objects.create(url=URL)
    assert made.secret.startswith("whsec_")
    assert all(text.startswith(' "1.old.') and "whsec_" not in text for text in stored())
    assert Webhook.objects.get(pk=made.webhook_id).secret == made.secret
    assert Webhook.objects.get(pk=plain.pk).secret == plain.secret
    store.update_webhook(made.webhook_id, enabled=False)
    Webhook.objects.get(pk=plain.pk).save()
    assert Webhook.objects.get(pk=made.webhook_id).secret == made.secret
    assert Webhook.objects.get(pk=plain.pk).secret == plain.secret


def test_a_secret_of_another_row_is_refused(store):
    first, second = store.create_webhook(URL), store.create_webhook(URL)
    with connection.cursor() as cursor:
        sql = "UPDATE helix_sessions_webhook SET secret = %s WHERE webhook_id = %s"
        cursor.execute(sql, [stored()[0], second.webhook_id])
    assert Webhook.objects.get(pk=first.webhook_id).secret == first.secret
    with pytest.raises(ContentUnreadable):
        _ = Webhook.objects.get(pk=second.webhook_id).secret


def test_secrets_are_rotated(store, encrypted):
    encrypted()
    made = store.create_webhook(URL)
    assert stored() == [made.secret]
    encrypted("old", "new", active="new")
    assert store.rotate_encryption(dry_run=True).rows == 1
    assert stored() == [made.secret]
    assert store.rotate_encryption().rows == 1
    assert stored()[0].startswith(' "1.new.')
    assert store.rotate_encryption().rows == 0
    encrypted("old", "new", active=None)
    assert store.rotate_encryption().rows == 1
    assert stored() == [made.secret]
