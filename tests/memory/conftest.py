"""A store, a clock and an embedder."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.memory import MemoryStore


class Clock:
    """`timezone.now` as a test sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = timezone.now()
        monkeypatch.setattr("django.utils.timezone.now", lambda: self.now)

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def memories() -> MemoryStore:
    return MemoryStore()


TOPICS = ("tea", "music", "travel")


def embed(texts: list[str]) -> list[list[float]]:
    """A number for each topic: how often a text names it."""
    return [[float(text.lower().count(topic)) for topic in TOPICS] for text in texts]


@pytest.fixture
def keys() -> Any:
    return lambda found: [memory.key for memory in found]
