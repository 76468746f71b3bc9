"""A clock that tests set, and schedules."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.models import Schedule, Session


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 5, 4, 8, 59, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def at(self, text: str) -> None:
        self.now = datetime.fromisoformat(text).replace(tzinfo=UTC)

    def advance(self, **much: float) -> None:
        self.now += timedelta(**much)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(timezone, "now", found)
    return found


@pytest.fixture
def hourly(clock: Clock) -> Callable[..., Schedule]:
    """A schedule that fires each full hour; the next is half a minute away."""

    def make(**fields: Any) -> Schedule:
        values = {"name": "Digest", "cron": "0 * * * *", "timezone": "UTC", "agent_type": "writer"}
        return Schedule.objects.create(**{**values, "prompt": "Write the digest.", **fields})

    return make


def sessions() -> list[str]:
    """The ids of all sessions, those of schedules in the order of their firings."""
    return sorted(Session.objects.values_list("session_id", flat=True))
