"""Totals of what was spent: entries are folded into them, a few hundred at a time.

A turn never writes a total, so turns do not wait for each other; the fold writes them for all. A read
adds what is not folded yet, in the same statement, so it makes no difference when that is done.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Q

from helix_sessions.models import SpendEntry, SpendLimit, SpendTotal
from helix_sessions.store.engine.connection import execute, fetch, transaction_on
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.spending import Spent, key_of_owner, starts, today
from helix_sessions.store.engine.tables import table
from helix_sessions.store.limits import sql

AT_ONCE = 256
_ROWS_PER_STATEMENT = 64
_DAYS_KEPT = timedelta(days=62)
_MONTHS_KEPT = timedelta(days=800)
"""How long the totals of windows that are over are kept; that of `total` stays."""

Place = tuple[str, str, str, date]
"""The key of a total: scope, key, window and first day."""


def fold(using: str, *, owner: str | None = None) -> int:
    """Add the entries, or those of an owner, to the totals; return how many they were."""
    folded = 0
    while True:
        with transaction_on(using) as connection:
            taken = _take(connection, owner)
            add(connection, _sums(taken))
        folded += len(taken)
        if len(taken) < AT_ONCE:
            return folded


def add(connection: BaseDatabaseWrapper, sums: dict[Place, Spent], *, larger: bool = False) -> None:
    """Add to totals, in one order, so that two who do so never wait for each other in a circle."""
    encode = table(SpendTotal).encoder(dialect_of(connection), table(SpendTotal).columns)
    rows = [encode((*place, *sums[place])) for place in sorted(sums)]
    for start in range(0, len(rows), _ROWS_PER_STATEMENT):
        some = rows[start : start + _ROWS_PER_STATEMENT]
        params = [value for row in some for value in row]
        text = sql.add_totals(len(some), larger=larger)
        execute(connection, text, params, prepare=len(some) == _ROWS_PER_STATEMENT)


def read(using: str, *, owner: str | None = None) -> dict[Place, Spent]:
    """All totals with what is not folded yet, or those of one owner."""
    connection = connections[using]
    found = fetch(connection, sql.read_all(owner is not None), [] if owner is None else [owner, owner])
    sums = _sums((row[3], row[0], row[1], *row[4:]) for row in found if row[2] is None)
    for scope, key, window, starts_on, *amount in found:
        if window is not None:
            place = (scope, key, window, _date(starts_on))
            sums[place] = sums.get(place, Spent()).plus(Spent(*amount))
    return {place: amount for place, amount in sums.items() if owner is None or place[0] == "owner"}


def remove_old(using: str, *, dry_run: bool = False) -> int:
    """Remove the totals of windows that are long over, and fold what is left to fold; return how many were
    removed."""
    now = today()
    if not dry_run:
        fold(using)
    rows = SpendTotal.objects.using(using).filter(
        Q(window="day", starts_on__lt=now - _DAYS_KEPT) | Q(window="month", starts_on__lt=now - _MONTHS_KEPT)
    )
    with transaction_on(using):
        return rows.count() if dry_run else rows.delete()[0]


def erase_owner(using: str, owner: Any, *, dry_run: bool = False) -> int:
    """Remove the limits and totals of an owner. What they spent stays in the totals of agent types and of
    all, which name no owner. Returns how many rows were removed."""
    key = key_of_owner(owner)
    if not dry_run:
        fold(using, owner=key)
    mine = {"scope": "owner", "key": key}
    limits = SpendLimit.objects.using(using).filter(**mine)
    totals = SpendTotal.objects.using(using).filter(**mine)
    with transaction_on(using):
        if dry_run:
            entries = SpendEntry.objects.using(using).filter(owner_key=key)
            return limits.count() + totals.count() + entries.count()
        return limits.delete()[0] + totals.delete()[0]


def _take(connection: BaseDatabaseWrapper, owner: str | None) -> list[Sequence[Any]]:
    owned, of = owner is not None, [] if owner is None else [owner]
    if dialect_of(connection).skips_locked_rows:
        return [*fetch(connection, sql.take_entries(owned), [*of, str(AT_ONCE)])]
    found = fetch(connection, sql.find_entries(owned), [*of, AT_ONCE])
    if found:
        execute(connection, sql.remove_entries(owned), [*of, found[-1][0]])
    return [row[1:] for row in found]


def _sums(entries: Iterable[Sequence[Any]]) -> dict[Place, Spent]:
    """What entries add to each total."""
    sums: dict[Place, Spent] = {}
    for day, owner_key, agent_type, *amount in entries:
        for place in _places(_date(day), owner_key, agent_type):
            sums[place] = sums.get(place, Spent()).plus(Spent(*amount))
    return sums


def _places(day: date, owner_key: str, agent_type: str) -> Iterator[Place]:
    for window, first in starts(day).items():
        if owner_key:
            yield "owner", owner_key, window, first
        yield "agent_type", agent_type, window, first
        yield "all", "", window, first


def _date(value: date | str) -> date:
    return date.fromisoformat(value) if isinstance(value, str) else value
