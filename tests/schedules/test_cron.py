"""Cron expressions on the wall clocks of time zones, on the days when these are changed too."""

from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest

from helix_sessions.cron import Cron
from helix_sessions.exceptions import InvalidInput
from tests.rows import each


def firings(expression: str, zone: str, first: str, last: str) -> list[str]:
    begin, end = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (first, last))
    cron = Cron(expression, zone)
    found = list(takewhile(lambda at: at <= end, cron.after(begin - timedelta(seconds=1))))
    backwards = list(takewhile(lambda at: at >= begin, cron.before(end)))
    assert found == backwards[::-1]
    return [f"{at:%d %H:%M}" for at in found]


NIGHTS = {
    "an ordinary night": (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-03-27T12:00",
        "2026-03-28T12:00",
        ["28 01:30"],
    ),
    "a time that does not exist": (
        *("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", "2026-03-30T12:00"),
        ["29 01:00", "30 00:30"],
    ),
    "many that do not exist, and the first that does": (
        *("*/30 2-3 * * *", "Europe/Berlin", "2026-03-28T12:00", "2026-03-29T12:00"),
        ["29 01:00", "29 01:30"],
    ),
    "a time that exists twice": (
        *("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", "2026-10-26T12:00"),
        ["25 00:30", "26 01:30"],
    ),
    "every hour of a night with 25 hours": (
        *("0 * * * *", "Europe/Berlin", "2026-10-24T23:00", "2026-10-25T02:00"),
        ["24 23:00", "25 00:00", "25 02:00"],
    ),
    "half an hour": (
        *("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00", "2026-10-04T23:00"),
        ["03 15:30", "04 15:15"],
    ),
    "the other way": (
        *("45 1 * * *", "Australia/Lord_Howe", "2026-04-03T16:00", "2026-04-05T00:00"),
        ["04 14:45"],
    ),
    "New York": (
        *("30 2 * * *", "America/New_York", "2026-03-08T00:00", "2026-03-09T12:00"),
        ["08 07:00", "09 06:30"],
    ),
    "no changes in UTC": ("30 2 * * *", "UTC", "2026-03-28T12:00", "2026-03-29T12:00", ["29 02:30"]),
    "a day that was left out": (
        *("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00", "2011-12-31T21:00"),
        ["29 22:00", "30 10:00", "30 22:00"],
    ),
}


@each("night", NIGHTS.values(), ids=NIGHTS)
def test_each_wall_clock_time_fires_once(night):
    expression, zone, first, last, expected = night
    assert firings(expression, zone, first, last) == expected


REFUSED = {
    "never": ("0 0 30 2 *", "UTC"),
    "never, though the parser needs years to see it": ("0 0 */20 * 1L", "UTC"),
    "no fields": ("", "UTC"),
    "four fields": ("* * * *", "UTC"),
    "six fields": ("0 * * * * *", "UTC"),
    "no minute": ("60 * * * *", "UTC"),
    "no step": ("*/0 * * * *", "UTC"),
    "a step of a weekday of the month": ("0 0 * * MON#1/2", "UTC"),
    "no weekday": ("0 0 * * FOO", "UTC"),
    "long": ("0," * 100 + "0 * * * *", "UTC"),
    "no text": (5, "UTC"),
    "unknown zone": ("0 * * * *", "Europe/Bonn"),
    "no zone": ("0 * * * *", ""),
    "a directory": ("0 * * * *", "Europe"),
    "a path": ("0 * * * *", "../../etc/passwd"),
    "an absolute path": ("0 * * * *", "/etc/localtime"),
    "a null character": ("0 * * * *", "UTC\x00"),
    "not a name": ("0 * * * *", None),
}


@each("row", REFUSED.values(), ids=REFUSED)
def test_what_is_no_schedule_is_refused(row):
    with pytest.raises(InvalidInput):
        Cron(*row)


def test_a_rare_firing_is_found():
    assert Cron("0 0 29 2 *", "UTC").next(datetime(2026, 1, 1, tzinfo=UTC), 2) == [
        datetime(2028, 2, 29, tzinfo=UTC),
        datetime(2032, 2, 29, tzinfo=UTC),
    ]
