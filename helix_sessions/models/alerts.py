"""Alerts: how many sessions of a list are too many."""

from datetime import datetime
from typing import Self
from uuid import uuid4

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from helix_sessions.models.constraints import at_least
from helix_sessions.models.fields import IdField


def new_alert_id() -> str:
    return str(uuid4())


class AlertQuerySet(models.QuerySet["Alert"]):
    def due(self, now: datetime) -> Self:
        """Enabled, and to be looked at."""
        return self.filter(enabled=True, next_check_at__lte=now)


class Alert(models.Model):
    """A filter of the list of sessions and a threshold. Webhooks are told when it is reached, and when it is
    not any more."""

    alert_id = IdField(primary_key=True, max_length=64, default=new_alert_id, editable=False)
    name = IdField(_("name"), max_length=200, unique=True)
    query = models.TextField(
        _("list"),
        max_length=4_000,
        help_text=_("What is after the question mark in the address of the list: status=failed&within=hour"),
    )
    threshold = models.BigIntegerField(
        _("threshold"),
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(10_000)],
        help_text=_("It fires when the list has so many sessions, and is over when it has fewer."),
    )
    every_seconds = models.BigIntegerField(
        _("seconds between two looks"),
        default=60,
        validators=[MinValueValidator(5), MaxValueValidator(86_400)],
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    is_firing = models.BooleanField(_("firing"), default=False, editable=False)
    count = models.BigIntegerField(_("sessions"), null=True, editable=False)
    error = models.TextField(_("error"), default="", editable=False)
    checked_at = models.DateTimeField(_("looked at"), null=True, editable=False)
    changed_at = models.DateTimeField(_("since"), null=True, editable=False)
    next_check_at = models.DateTimeField(default=timezone.now, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = AlertQuerySet.as_manager()

    class Meta:
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        constraints = [at_least(1, "helix_alert_numbers", "threshold", "every_seconds")]
        indexes = [
            models.Index(
                fields=["next_check_at"], name="helix_alert_due_idx", condition=models.Q(enabled=True)
            )
        ]

    def __str__(self) -> str:
        return str(self.name)
