"""Schedules, and their firings.

Rows of schedules may be made and saved by anybody, so their fields refuse what is no schedule, and note when
the next firing is.
"""

from collections.abc import Collection
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.db import models
from django.utils import timezone as clock
from django.utils.translation import gettext_lazy as _

from helix_sessions.cron import MAX_CRON, MAX_ZONE, Cron
from helix_sessions.exceptions import InvalidInput
from helix_sessions.models.constraints import non_negative, one_of
from helix_sessions.models.databases import OwnerKey, go_with_owner
from helix_sessions.models.fields import IdField, SecretField
from helix_sessions.types import (
    FIRING_STATES,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MAX_CATCH_UP,
    OVERLAPS,
    SCHEDULE_SESSIONS,
)

MAX_NAME = 200
MAX_PROMPT = 100_000
_TEXTS = {"name": MAX_NAME, "agent_type": 255, "prompt": MAX_PROMPT}
_CHOICES: dict[str, Collection[str]] = {"session": SCHEDULE_SESSIONS, "overlap": OVERLAPS}
_NUMBERS = {"catch_up": (0, MAX_CATCH_UP), "priority": (LOWEST_PRIORITY, HIGHEST_PRIORITY)}


def new_schedule_id() -> str:
    return str(uuid4())


def project_zone() -> str:
    return str(settings.TIME_ZONE)


def check_entered(row: "Schedule") -> None:
    """Raise `InvalidInput` for values that are no schedule."""
    for name, limit in _TEXTS.items():
        text = getattr(row, name)
        if not isinstance(text, str) or not text.strip() or len(text) > limit or "\x00" in text:
            raise InvalidInput(f"{name} must be a text of 1 to {limit} characters.")
    for name, choices in _CHOICES.items():
        if getattr(row, name) not in choices:
            raise InvalidInput(f"{name} must be one of {', '.join(choices)}.")
    for name, (least, most) in _NUMBERS.items():
        number = getattr(row, name)
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise InvalidInput(f"{name} must be a number from {least} to {most}.")
    if not isinstance(row.enabled, bool):
        raise InvalidInput("enabled must be True or False.")
    Cron(row.cron, row.timezone)


def plan_of(row: "Schedule") -> str:
    """What the next firing is worked out from."""
    return f"{row.cron} {row.timezone}"


class CronField(models.CharField):  # type: ignore[type-arg]
    """A cron expression, which is checked with the rest of the row by every caller who saves it."""

    def pre_save(self, model_instance: Any, add: bool) -> Any:
        check_entered(model_instance)
        return super().pre_save(model_instance, add)


class NextFiringField(models.DateTimeField):  # type: ignore[type-arg]
    """When a schedule fires next. A new one fires from now on, and so does one whose times were changed:
    nothing before now was missed."""

    def pre_save(self, model_instance: Any, add: bool) -> Any:
        row, plan = model_instance, plan_of(model_instance)
        if not row.enabled:
            row.next_at = None
        elif row.next_at is None or row.planned != plan:
            row.next_at = Cron(row.cron, row.timezone).next(clock.now(), 1)[0]
        row.planned = plan
        return super().pre_save(row, add)


class Schedule(models.Model):
    """Work that starts by the clock: a prompt for an agent, at the times of a cron expression."""

    schedule_id = IdField(primary_key=True, max_length=64, default=new_schedule_id, editable=False)
    name = models.CharField(_("name"), max_length=MAX_NAME)
    cron = CronField(
        _("cron"), max_length=MAX_CRON, help_text=_("Minute, hour, day of month, month, day of week.")
    )
    timezone = models.CharField(_("time zone"), max_length=MAX_ZONE, default=project_zone)
    agent_type = IdField(_("agent type"))
    prompt = SecretField(_("prompt"))
    owner = OwnerKey(
        settings.AUTH_USER_MODEL, verbose_name=_("owner"), on_delete=go_with_owner, null=True, blank=True
    )
    session = IdField(_("session"), max_length=8, default="new", choices=[(x, x) for x in SCHEDULE_SESSIONS])
    overlap = IdField(_("overlap"), max_length=8, default="skip", choices=[(x, x) for x in OVERLAPS])
    catch_up = models.IntegerField(
        _("catch up"), default=1, help_text=_("How many missed firings are made good.")
    )
    priority = models.IntegerField(_("priority"), default=0)
    enabled = models.BooleanField(_("enabled"), default=True)
    created_at = models.DateTimeField(_("created at"), default=clock.now, editable=False)

    next_at = NextFiringField(_("next firing"), null=True, editable=False)
    planned = models.CharField(max_length=MAX_CRON + MAX_ZONE + 10, default="", editable=False)
    """What `next_at` was worked out from."""
    last_firing_at = models.DateTimeField(_("last firing"), null=True, editable=False)
    last_error = models.TextField(_("last error"), null=True, editable=False)  # noqa: DJ001

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        constraints = [
            one_of("session", SCHEDULE_SESSIONS, "helix_schedule_session"),
            one_of("overlap", OVERLAPS, "helix_schedule_overlap"),
            non_negative("helix_schedule_numbers", "catch_up"),
        ]
        indexes = [models.Index(fields=["next_at"], name="helix_schedule_due_idx")]

    def __str__(self) -> str:
        return str(self.name)


class ScheduleFiring(models.Model):
    """One firing of a schedule, made in the transaction of its session and its input."""

    firing_id = models.BigAutoField(primary_key=True)
    schedule = models.ForeignKey(
        Schedule,
        verbose_name=_("schedule"),
        on_delete=models.CASCADE,
        db_index=False,
        related_name="firings",
    )
    firing_at = models.DateTimeField(_("time"))
    made_at = models.DateTimeField(_("made at"))
    state = IdField(_("state"), max_length=8)
    session_id = IdField(_("session"), null=True)
    input_id = IdField(_("input"), null=True)
    error = models.TextField(_("error"), null=True)  # noqa: DJ001

    class Meta:
        verbose_name = _("schedule firing")
        verbose_name_plural = _("schedule firings")
        constraints = [
            one_of("state", FIRING_STATES, "helix_firing_state"),
            models.UniqueConstraint(fields=["schedule", "firing_at"], name="helix_firing_once"),
        ]
        indexes = [
            models.Index(
                fields=["schedule", "firing_id"],
                name="helix_firing_queue_idx",
                condition=models.Q(state="queued"),
            )
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id} {self.firing_at:%Y-%m-%d %H:%M}"
