"""Webhooks, and the outbox: what is to be sent to them, written with the change it tells of."""

import base64
import os
from uuid import uuid4

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from helix_sessions.models.constraints import at_least
from helix_sessions.models.fields import DocumentField, IdField, SecretField

SECRET_PREFIX = "whsec_"  # noqa: S105
_SECRET_BYTES = 32


def new_webhook_id() -> str:
    return str(uuid4())


def new_secret() -> str:
    """A secret as Standard Webhooks wants it."""
    return SECRET_PREFIX + base64.b64encode(os.urandom(_SECRET_BYTES)).decode()


class Webhook(models.Model):
    """An address that is told of events of all sessions."""

    webhook_id = IdField(primary_key=True, max_length=64, default=new_webhook_id, editable=False)
    url = models.CharField(_("URL"), max_length=2000)
    events = DocumentField(_("events"), default=list, blank=True, searchable=True)
    secret = SecretField(_("secret"), default=new_secret)
    enabled = models.BooleanField(_("enabled"), default=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("webhook")
        verbose_name_plural = _("webhooks")

    def __str__(self) -> str:
        return str(self.webhook_id)


class WebhookDelivery(models.Model):
    """One event for one webhook. The store adds it in the transaction of the event; `due_at` is null once it
    was delivered or given up."""

    delivery_id = models.BigAutoField(primary_key=True)
    webhook = models.ForeignKey(
        Webhook,
        verbose_name=_("webhook"),
        on_delete=models.CASCADE,
        # A constraint would have every session that ends a run lock the same row.
        db_constraint=False,
        db_index=False,
        related_name="deliveries",
    )
    message_id = IdField(_("message id"), max_length=64)
    type = IdField(_("type"), max_length=32)
    session_id = IdField(_("session"))
    body = models.TextField(_("body"))
    created_at = models.DateTimeField(_("created at"))
    due_at = models.DateTimeField(_("next attempt"), null=True)
    attempts = models.IntegerField(_("attempts"), default=0)
    attempted_at = models.DateTimeField(_("last attempt"), null=True)
    delivered_at = models.DateTimeField(_("delivered at"), null=True)
    status_code = models.IntegerField(_("answer"), null=True)
    error = models.TextField(_("error"), null=True)  # noqa: DJ001

    class Meta:
        verbose_name = _("webhook delivery")
        verbose_name_plural = _("webhook deliveries")
        constraints = [
            models.UniqueConstraint(fields=["webhook", "message_id"], name="helix_delivery_once"),
            at_least(0, "helix_delivery_numbers", "attempts"),
        ]
        indexes = [
            models.Index(
                fields=["due_at"], condition=models.Q(due_at__isnull=False), name="helix_delivery_due_idx"
            ),
            models.Index(fields=["session_id"], name="helix_delivery_session_idx"),
            models.Index(fields=["webhook", "created_at"], name="helix_delivery_age_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.message_id}"
