"""The sample's own time: stories happen on the days before now, and their steps take as long as they say."""

import threading
from datetime import datetime, timedelta
from typing import Self

from django.utils import timezone


class Clock:
    """While it is entered, `timezone.now()` in this thread is the time of the story. Others keep theirs."""

    def __init__(self) -> None:
        self.start = self.now = timezone.now()
        self._thread = threading.get_ident()
        self._real = timezone.now

    def __enter__(self) -> Self:
        timezone.now = self._answer
        return self

    def __exit__(self, *error: object) -> None:
        timezone.now = self._real

    def go_to(self, *, days: float = 0, hours: float = 0, minutes: float = 0) -> None:
        """So long before the sample is loaded."""
        self.now = self.start - timedelta(days=days, hours=hours, minutes=minutes)

    def wait(self, seconds: float) -> None:
        """Time passes, but never beyond the moment at which the sample is loaded."""
        self.now = min(self.now + timedelta(seconds=seconds), self.start)

    def date(self, days: int = 0) -> str:
        """The day so many days after the story's, as agents write it."""
        return (self.now + timedelta(days=days)).date().isoformat()

    def _answer(self) -> datetime:
        return self.now if threading.get_ident() == self._thread else self._real()
