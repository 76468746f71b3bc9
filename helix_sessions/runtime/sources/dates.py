"""What day it is where the user is."""

from collections.abc import Callable
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.utils import timezone

from helix_sessions.exceptions import InvalidInput
from helix_sessions.types import JSON, SessionState


class Today:
    """The date in a time zone, given by name or as a function of the session that returns a name."""

    def __init__(self, time_zone: str | Callable[[SessionState], str] = "UTC", key: str = "date") -> None:
        self.key = key
        self.time_zone = time_zone
        if isinstance(time_zone, str):
            _zone(time_zone)

    def observe(self, session: SessionState) -> JSON:
        name = self.time_zone if isinstance(self.time_zone, str) else self.time_zone(session)
        today = timezone.localtime(timezone.now(), _zone(name)).date()
        return {"date": today.isoformat(), "time_zone": name}

    def baseline(self, value: JSON) -> str:
        return f"Today is {value['date']} ({value['time_zone']})."

    def update(self, old: JSON, new: JSON) -> str:
        return f"It is another day: today is {new['date']} ({new['time_zone']})."

    def removed(self, old: JSON) -> str:
        return "You are no longer told what day it is."


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidInput(f"There is no time zone {name!r:.80}.") from None
