"""Schedules, and their firings.

Rows of schedules may be made and saved by anybody, so `save` refuses what is no schedule, and notes when the
next firing is.
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
_TIMES = ("cron", "timezone", "enabled")
_NOTED = ("next_at", "has_queue", "kept_session_id", "last_firing_at", "last_error")
"""What the store notes of a schedule as it fires."""


def new_schedule_id() -> str:
    return str(uuid4())


def project_zone() -> str:
    return str(settings.TIME_ZONE)


class Schedule(models.Model):
    """Work that starts by the clock: a prompt for an agent, at the times of a cron expression."""

    schedule_id = IdField(primary_key=True, max_length=64, default=new_schedule_id, editable=False)
    name = models.CharField(_("name"), max_length=MAX_NAME)
    cron = models.CharField(
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

    next_at = models.DateTimeField(_("next firing"), null=True, editable=False)
    has_queue = models.BooleanField(default=False, editable=False)
    kept_session_id = IdField(null=True, editable=False)
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
        indexes = [
            models.Index(fields=["next_at"], name="helix_schedule_due_idx"),
            models.Index(
                fields=["schedule_id"],
                name="helix_schedule_queue_idx",
                condition=models.Q(has_queue=True),
            ),
        ]

    def __str__(self) -> str:
        return str(self.name)

    _times: tuple[Any, ...] = ()
    """The times it had when it was read, to see whether they are changed."""

    def save(self, *args: Any, **options: Any) -> None:
        """Refuse what is no schedule with `InvalidInput`. Other times begin from now on; what the store notes
        is left to it."""
        if options.get("update_fields") is None:
            self.check_entered()
            changed = self._state.adding or self._times != self._times_now()
            if changed:
                self.begin()
            if not self._state.adding:
                left = set(_NOTED) - ({"next_at"} if changed else set())
                names = (field.name for field in self._meta.concrete_fields if not field.primary_key)
                options["update_fields"] = [name for name in names if name not in left]
        super().save(*args, **options)
        self._times = self._times_now()

    @classmethod
    def from_db(cls, db: str | None, field_names: Any, values: Any) -> "Schedule":
        """Note the times it has."""
        found = super().from_db(db, field_names, values)
        found._times = tuple(found.__dict__.get(name) for name in _TIMES)
        return found

    def _times_now(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in _TIMES)

    def begin(self) -> None:
        """Fire from now on; nothing before now was missed."""
        self.next_at = Cron(self.cron, self.timezone).next(clock.now(), 1)[0] if self.enabled else None

    def check_entered(self) -> None:
        """Raise `InvalidInput` for values that are no schedule."""
        for name, limit in _TEXTS.items():
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip() or len(text) > limit or "\x00" in text:
                raise InvalidInput(f"{name} must be a text of 1 to {limit} characters.")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InvalidInput(f"{name} must be one of {', '.join(choices)}.")
        for name, (least, most) in _NUMBERS.items():
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
                raise InvalidInput(f"{name} must be a number from {least} to {most}.")
        if not isinstance(self.enabled, bool):
            raise InvalidInput("enabled must be True or False.")
        Cron(self.cron, self.timezone)


class ScheduleFiring(models.Model):
    """One firing of a schedule, made in the transaction of its session and its input."""

    firing_id = models.BigAutoField(primary_key=True)
    schedule = models.ForeignKey(
        Schedule, verbose_name=_("schedule"), on_delete=models.CASCADE, related_name="firings"
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

    def __str__(self) -> str:
        return f"{self.schedule_id} {self.firing_at:%Y-%m-%d %H:%M}"
