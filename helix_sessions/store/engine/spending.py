"""Spending: what a turn used is counted by the write that commits it, and that write tells what is left.

The amounts go to a row of the session's own, so no two sessions wait for each other. The same statement
answers which limits hold for the session and what was used of them before it, so that the question costs no
statement of its own. Money is counted in billionths of a dollar, which add up exactly.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from django.utils import timezone

from helix_sessions.models import SpendEntry, SpendLimit, SpendTotal
from helix_sessions.store.engine.dialect import Dialect, Statement
from helix_sessions.store.engine.tables import table

if TYPE_CHECKING:
    from helix_sessions.store.engine.unit_of_work import UnitOfWork

NANO = 10**9
FIRST_DAY = date.min
"""The first day of the window `total`."""
CLOSE = 0.8
_MOST = 10**15
"""No single report counts for more: a million dollars."""


class Spent(NamedTuple):
    """An amount."""

    nano_usd: int = 0
    tokens: int = 0

    def plus(self, other: "Spent") -> "Spent":
        return Spent(self.nano_usd + other.nano_usd, self.tokens + other.tokens)


NOTHING = Spent()


def spent(cost: float, tokens: float) -> Spent:
    """What a report amounts to. A correction may be negative."""
    return Spent(
        *(max(-_MOST, min(_MOST, round(amount))) for amount in (Decimal(str(cost)) * NANO, Decimal(tokens)))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A limit, and what was used of it in the window that began on a day."""

    limit_id: str
    scope: str
    key: str | None
    window: str
    nano_usd: int | None
    tokens: int | None
    warn_at: float | None
    enabled: bool
    warned_on: date | None
    starts_on: date
    used: Spent

    @property
    def share(self) -> float:
        """How much of the limit is used: 1 is all of it."""
        return max(
            0.0 if limit is None else used / limit if limit else 1.0
            for used, limit in zip(self.used, (self.nano_usd, self.tokens), strict=True)
        )

    @property
    def is_reached(self) -> bool:
        """Nothing is left."""
        limits = (self.nano_usd, self.tokens)
        return any(limit is not None and used >= limit for used, limit in zip(self.used, limits, strict=True))

    @property
    def is_close(self) -> bool:
        """Little is left: the share of the warning is reached, or else four fifths."""
        return self.share >= (CLOSE if self.warn_at is None else self.warn_at)

    @property
    def owes_warning(self) -> bool:
        """The share of the warning is reached, and none was sent in this window."""
        return self.warn_at is not None and self.warned_on != self.starts_on and self.share >= self.warn_at

    @property
    def resets_at(self) -> datetime | None:
        """When the next window begins; `None`: there is none."""
        return resets_at(self.window, self.starts_on)


Standings = tuple[Standing, ...]

Watcher = Callable[[str, str, Standings], None]
watchers: list[Watcher] = []
"""Who is told, after the commit of a write that spent something, how its limits stand: the database, the
session and the limits."""


# Windows


def today() -> date:
    """The day in the project's time zone."""
    return timezone.localdate(timezone.now(), timezone.get_default_timezone())


def starts(day: date) -> dict[str, date]:
    """When the windows began that a day is in."""
    return {"day": day, "month": day.replace(day=1), "total": FIRST_DAY}


def resets_at(window: str, starts_on: date) -> datetime | None:
    """The midnight at which the window after this one begins."""
    if window == "total":
        return None
    days = 1 if window == "day" else 31
    following = starts_on + timedelta(days=days)
    if window == "month":
        following = following.replace(day=1)
    return timezone.make_aware(datetime.combine(following, time()), timezone.get_default_timezone())


# With a write


def record(work: "UnitOfWork") -> None:
    """Make the amounts of a unit of work, and the question how the limits stand, a part of its write."""
    session = work.session
    if work.spent != NOTHING:
        work.put(
            SpendEntry,
            day=today(),
            owner_key=key_of_owner(session.owner_id),
            agent_type=session.agent_type,
            nano_usd=work.spent.nano_usd,
            tokens=work.spent.tokens,
        )
        work.notices["spend"] = partial(_tell, work)
    work.question = question(work.dialect, session.owner_id, session.agent_type)


def _tell(work: "UnitOfWork") -> None:
    standings = standings_of(work)
    for watcher in watchers if standings else ():
        watcher(work.connection.alias, work.session.session_id, standings)


def standings_of(work: "UnitOfWork") -> Standings:
    """How the limits stand that hold for the session, with what the write itself has added."""
    if work.standings is None:
        work.standings = read_standings(work.answer or (), work.spent)
    return work.standings


def key_of_owner(owner_id: Any) -> str:
    """An owner as limits name it: the primary key as text."""
    return "" if owner_id is None else str(owner_id)


# The question


def question(dialect: Dialect, owner_id: Any, agent_type: str) -> Statement:
    """Which limits hold for a session, and what was used of each."""
    days = [starts(today())[window] for window in ("day", "month", "total")]
    return standings_sql(dialect, _HOLDS), dialect.parameters([*days, key_of_owner(owner_id), agent_type])


_HOLDS = (
    '"enabled" AND ("scope" = \'all\' OR ("scope" = \'owner\' AND "key" = %s)'
    ' OR ("scope" = \'agent_type\' AND "key" = %s))'
)

_LIMIT = ("limit_id", "scope", "key", "window", "usd", "tokens", "warn_at", "enabled", "warned_on")
COLUMNS = (*_LIMIT, "starts_on", "used_nano_usd", "used_tokens")
"""What the question is answered with."""


@cache
def standings_sql(dialect: Dialect, condition: str) -> str:
    """The limits that meet a condition, with what was used of each: its total, and the entries that are not
    folded into it yet. The first days of the three windows are its first parameters."""
    names = ", ".join(f'"{name}"' for name in _LIMIT)
    columns = ", ".join(f'l."{name}"' for name in (*_LIMIT, "starts_on"))
    return (
        f'SELECT {columns}, COALESCE(t."nano_usd", 0) + COALESCE(SUM(e."nano_usd"), 0) AS "used_nano_usd",'  # noqa: S608
        ' COALESCE(t."tokens", 0) + COALESCE(SUM(e."tokens"), 0) AS "used_tokens"'
        f" FROM (SELECT {names}, CASE \"window\" WHEN 'day' THEN {dialect.day}"
        f" WHEN 'month' THEN {dialect.day} ELSE {dialect.day} END AS \"starts_on\""
        f" FROM {table(SpendLimit).name} WHERE {condition}) l"
        f' LEFT JOIN {table(SpendTotal).name} t ON t."scope" = l."scope"'
        ' AND t."key" = COALESCE(l."key", \'\') AND t."window" = l."window"'
        ' AND t."starts_on" = l."starts_on"'
        f' LEFT JOIN {table(SpendEntry).name} e ON e."day" >= l."starts_on" AND (l."scope" = \'all\''
        ' OR (l."scope" = \'owner\' AND e."owner_key" = l."key")'
        ' OR (l."scope" = \'agent_type\' AND e."agent_type" = l."key"))'
        f' GROUP BY {columns}, t."nano_usd", t."tokens"'
    )


def read_standings(rows: Iterable[Sequence[Any] | dict[str, Any]], added: Spent = NOTHING) -> Standings:
    """The rows of the question, as a database gives them or as JSON, and what was added since."""
    found = [_standing([*row.values()] if isinstance(row, dict) else row, added) for row in rows]
    found.sort(key=lambda each: (each.scope, each.key or "", each.window))
    return tuple(found)


def _standing(row: Sequence[Any], added: Spent) -> Standing:
    limit_id, scope, key, window, usd, tokens, warn_at, enabled, warned_on, starts_on, *used = row
    return Standing(
        limit_id=limit_id,
        scope=scope,
        key=key,
        window=window,
        nano_usd=None if usd is None else round(Decimal(str(usd)) * NANO),
        tokens=tokens,
        warn_at=None if warn_at is None else float(warn_at),
        enabled=bool(enabled),
        warned_on=_date(warned_on),
        starts_on=_date(starts_on) or FIRST_DAY,
        used=Spent(*map(int, used)).plus(added),
    )


def _date(value: Any) -> date | None:
    return date.fromisoformat(value) if isinstance(value, str) else value
