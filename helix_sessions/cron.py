"""Cron expressions: the moments that the wall clock of a time zone shows their times.

`cronsim` reads the expression and walks over wall-clock times; here they become moments. Each wall-clock time
is one moment, so that what the clock does in spring and autumn never doubles and never loses one: a time that
is skipped is the first moment after the gap, one that is shown twice is the first of the two.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from helix_sessions.exceptions import InvalidInput

MAX_CRON, MAX_ZONE = 100, 64
_FIELDS = 5
_LONGEST_REPEAT = timedelta(hours=3)
"""No clock is set back further than this in one night."""


class Cron:
    """The firings of an expression in a time zone; `InvalidInput` if there are none."""

    def __init__(self, expression: str, zone: str) -> None:
        self.zone = zone_named(zone)
        self.expression = _checked(expression)

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The firings later than this moment, the earliest first, in UTC."""
        last = moment
        for wall in CronSim(self.expression, self._wall(moment)):
            found = self._moment(wall)
            if found > last:
                last = found
                yield found

    def before(self, moment: datetime) -> Iterator[datetime]:
        """The firings up to this moment, the latest first, in UTC."""
        last = None
        start = self._wall(moment) + _LONGEST_REPEAT
        for wall in CronSim(self.expression, start, reverse=True):
            found = self._moment(wall)
            if found <= moment and (last is None or found < last):
                last = found
                yield found

    def next(self, moment: datetime, count: int) -> list[datetime]:
        """The next so many firings."""
        return list(islice(self.after(moment), count))

    def _wall(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone).replace(tzinfo=None, fold=0)

    def _moment(self, wall: datetime) -> datetime:
        """When the clock shows this time first; for one that it skips, when it has skipped it."""
        late = wall.replace(tzinfo=self.zone).astimezone(UTC)
        if self._wall(late) == wall:
            return late
        early = wall.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
        offset = late.astimezone(self.zone).utcoffset()
        while late - early > timedelta(seconds=1):  # the clock is set forward between the two
            middle = early + timedelta(seconds=(late - early) // timedelta(seconds=2))
            if middle.astimezone(self.zone).utcoffset() == offset:
                late = middle
            else:
                early = middle
        return late


@lru_cache(maxsize=256)
def cron(expression: str, zone: str) -> Cron:
    """The firings of an expression that was checked before."""
    return Cron(expression, zone)


def zone_named(name: str) -> ZoneInfo:
    """A time zone of the IANA database; `InvalidInput` if it has none of this name."""
    if isinstance(name, str) and 0 < len(name) <= MAX_ZONE:
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):  # unknown, or not even a name
            pass
    raise InvalidInput(f"{name!r:.80} is no time zone; use a name such as Europe/Berlin.")


def _checked(expression: str) -> str:
    if not isinstance(expression, str) or len(expression) > MAX_CRON:
        raise InvalidInput(f"A cron expression is a text of at most {MAX_CRON} characters.")
    if len(expression.split()) != _FIELDS:
        raise InvalidInput(
            f"{expression!r:.80} is no cron expression: it has five fields,"
            " minute, hour, day of the month, month, day of the week."
        )
    try:
        first = next(CronSim(expression, datetime(2000, 1, 1)), None)
    except (CronSimError, AssertionError, ValueError) as error:
        raise InvalidInput(f"{expression!r:.80} is no cron expression: {error}.") from None
    if first is None:
        raise InvalidInput(f"The cron expression {expression!r:.80} never fires.")
    return expression
