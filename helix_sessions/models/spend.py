"""Spend: the limits that operators set, and what was spent.

A turn adds to the row of its own session and day, so that no two sessions write the same row. These entries
are folded into totals, one row for each owner, agent type and window, which outlive the sessions.
"""

from uuid import uuid4

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from helix_sessions.models.constraints import one_of
from helix_sessions.models.fields import CounterField, IdField
from helix_sessions.types import SPEND_SCOPES, SPEND_WINDOWS


def new_limit_id() -> str:
    return str(uuid4())


class SpendLimit(models.Model):
    """What an owner, an agent type or all together may spend in a window. `warned_on` is the first day of the
    window that a warning was sent of."""

    limit_id = IdField(primary_key=True, max_length=64, default=new_limit_id, editable=False)
    scope = IdField(_("scope"), max_length=16, choices=[(each, each) for each in SPEND_SCOPES])
    key = IdField(
        _("key"),
        null=True,
        blank=True,
        help_text=_("The key of the owner, or the agent type; empty for all."),
    )
    window = IdField(_("window"), max_length=8, choices=[(each, each) for each in SPEND_WINDOWS])
    usd = models.DecimalField(_("US dollars"), max_digits=18, decimal_places=9, null=True, blank=True)
    tokens = models.BigIntegerField(_("tokens"), null=True, blank=True)
    warn_at = models.FloatField(
        _("warn at"),
        null=True,
        blank=True,
        help_text=_("A share of the limit, such as 0.8: one warning in each window."),
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    warned_on = models.DateField(null=True, editable=False)
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("spend limit")
        verbose_name_plural = _("spend limits")
        constraints = [
            one_of("scope", SPEND_SCOPES, "helix_spend_scope"),
            one_of("window", SPEND_WINDOWS, "helix_spend_window"),
            models.CheckConstraint(
                condition=models.Q(scope="all", key__isnull=True)
                | models.Q(~models.Q(scope="all"), key__isnull=False),
                name="helix_spend_key",
            ),
            models.CheckConstraint(
                condition=models.Q(usd__gte=0, tokens__gte=0, warn_at__gt=0, warn_at__lte=1),
                name="helix_spend_amounts",
            ),
            models.UniqueConstraint(fields=["scope", "key", "window"], name="helix_spend_limit_once"),
            models.UniqueConstraint(
                fields=["scope", "window"],
                condition=models.Q(key__isnull=True),
                name="helix_spend_limit_of_all_once",
            ),
        ]

    def __str__(self) -> str:
        return " ".join(filter(None, (self.scope, self.key, self.window)))


class SpendEntry(models.Model):
    """What a session has spent on a day, for the owner it had then, until it is folded into the totals. It
    does not belong to its session: it stays when that is deleted."""

    pk = models.CompositePrimaryKey("day", "session_id", "owner_key", "agent_type")
    day = models.DateField()
    session_id = IdField()
    owner_key = IdField()
    agent_type = IdField()
    nano_usd = CounterField()
    tokens = CounterField()

    def __str__(self) -> str:
        return f"{self.session_id} on {self.day}"


class SpendTotal(models.Model):
    """What was spent in a window that begins on this day. `key` is empty for all, and `starts_on` is the
    first of all days for what was ever spent."""

    pk = models.CompositePrimaryKey("scope", "key", "window", "starts_on")
    scope = IdField(max_length=16)
    key = IdField()
    window = IdField(max_length=8)
    starts_on = models.DateField()
    nano_usd = models.BigIntegerField()
    tokens = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.scope} {self.key} {self.window} {self.starts_on}"
