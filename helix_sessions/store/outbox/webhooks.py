"""Webhooks: made, changed, listed, deleted. A secret is returned once, by its creation."""

import base64
import binascii
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from helix_sessions import egress, models
from helix_sessions.conf import conf
from helix_sessions.exceptions import InvalidInput, WebhookNotFound
from helix_sessions.models.webhooks import SECRET_PREFIX
from helix_sessions.store.engine import ids, inputs
from helix_sessions.store.engine.connection import transaction_on
from helix_sessions.store.engine.store import Store
from helix_sessions.types import UNSET, WEBHOOK_EVENTS, CreatedWebhook, Unset, Webhook

MAX_URL = 2000
_SECRET_BYTES = range(24, 65)


def create_webhook(
    store: Store,
    url: str,
    *,
    events: Iterable[str] = (),
    secret: str | None = None,
    enabled: bool = True,
) -> CreatedWebhook:
    """Have an address told of events of all sessions, from the next event on. Without `events` it is
    told of all types; without a `secret` one is made. This is the only call that returns it."""
    _check_scope(store)
    values = {
        "url": checked_url(url),
        "events": _events(events),
        "enabled": inputs.flag(enabled, "enabled"),
        **({} if secret is None else {"secret": checked_secret(secret)}),
    }
    row = models.Webhook(webhook_id=ids.new_id(), **values)
    with transaction_on(store.using):
        row.save(using=store.using, force_insert=True)
    return CreatedWebhook(**_columns(row), secret=row.secret)


def list_webhooks(store: Store) -> list[Webhook]:
    """All webhooks, the oldest first, without their secrets."""
    _check_scope(store)
    rows = models.Webhook.objects.using(store.using).defer("secret")
    return [_value(row) for row in rows.order_by("created_at", "webhook_id")]


def get_webhook(store: Store, webhook_id: str) -> Webhook:
    """One webhook, without its secret."""
    _check_scope(store)
    return _value(find(store, webhook_id))


def update_webhook(
    store: Store,
    webhook_id: str,
    *,
    url: str | Unset = UNSET,
    events: Iterable[str] | Unset = UNSET,
    enabled: bool | Unset = UNSET,
) -> Webhook:
    """Change what is given. While a webhook is not enabled nothing is added for it, and what waits goes
    on waiting."""
    _check_scope(store)
    changes: dict[str, Any] = {}
    if not isinstance(url, Unset):
        changes["url"] = checked_url(url)
    if not isinstance(events, Unset):
        changes["events"] = _events(events)
    if not isinstance(enabled, Unset):
        changes["enabled"] = inputs.flag(enabled, "enabled")
    with transaction_on(store.using):
        row = find(store, webhook_id)
        for name, value in changes.items():
            setattr(row, name, value)
        row.save(using=store.using, update_fields=[*changes])
    return _value(row)


def delete_webhook(store: Store, webhook_id: str) -> None:
    """Delete a webhook, and what waits for it."""
    _check_scope(store)
    with transaction_on(store.using):
        row = find(store, webhook_id)
        models.WebhookDelivery.objects.using(store.using).filter(webhook_id=row.pk).delete()
        models.Webhook.objects.using(store.using).filter(webhook_id=row.pk).delete()


def checked_url(url: str) -> str:
    """The address, if webhooks may be sent there as far as its text says. What its name stands for is looked
    at when something is sent."""
    egress.checked_url(inputs.text(url, "The url", limit=MAX_URL))
    if not conf.WEBHOOK_ALLOW_PRIVATE:
        parts = urlsplit(url)
        if parts.scheme != "https":
            raise InvalidInput("Webhooks are sent by https.")
        egress.refuse_private_name(str(parts.hostname))
    return url


def checked_secret(secret: str) -> str:
    """A secret as Standard Webhooks wants it; no message shows it."""
    inputs.text(secret, "The secret")
    if not secret.startswith(SECRET_PREFIX) or secret_bytes(secret) is None:
        raise InvalidInput(f"A secret is {SECRET_PREFIX} and 24 to 64 bytes in base64.")
    return secret


def secret_bytes(secret: str) -> bytes | None:
    """The key behind a secret; `None` if it is none."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) in _SECRET_BYTES else None


def find(store: Store, webhook_id: str) -> models.Webhook:
    """The row of a webhook."""
    key = inputs.identifier(webhook_id, "webhook_id")
    rows = models.Webhook.objects.using(store.using).defer("secret")
    row = rows.filter(webhook_id=key).first()
    if row is None:
        raise WebhookNotFound(f"There is no webhook {key!r:.100}.")
    return row


def _check_scope(store: Store) -> None:
    if store._owner is not UNSET:
        raise InvalidInput("Webhooks are told of the sessions of all owners; use a store without an owner.")


def _events(values: Any) -> list[str]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput("events must be a list of types.")
    given = [inputs.choice(value, WEBHOOK_EVENTS, "A type of webhook events") for value in values]
    return [each for each in WEBHOOK_EVENTS if each in given]


def _value(row: models.Webhook) -> Webhook:
    return Webhook(**_columns(row))


def _columns(row: models.Webhook) -> dict[str, Any]:
    columns = {name: getattr(row, name) for name in ("webhook_id", "url", "enabled", "created_at")}
    return {**columns, "events": tuple(row.events)}
