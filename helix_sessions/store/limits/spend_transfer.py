"""Spend limits, and what was spent, as lines of an export, and back."""

import json
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import HelixSessionsError, InvalidExport
from helix_sessions.models import SpendLimit
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import transaction_on
from helix_sessions.store.engine.spending import FIRST_DAY, Spent, key_of_owner
from helix_sessions.store.limits import spend_limits, spend_totals
from helix_sessions.store.limits.spend_totals import Place
from helix_sessions.store.limits.sql import MOST
from helix_sessions.types import SPEND_SCOPES, SPEND_WINDOWS, UNSET

LIMIT, TOTAL = "spend_limit", "spend_total"
KINDS = (LIMIT, TOTAL)
_LIMIT = ("scope", "key", "window", "usd", "tokens", "warn_at", "enabled")
_TOTAL = ("scope", "key", "window", "starts_on", "nano_usd", "tokens")
_AT_ONCE = 500


def lines(using: str, owner: Any = None) -> Iterator[str]:
    """All limits and totals, or those of one owner, each as a line of JSON."""
    key = None if owner is None else key_of_owner(inputs.owner_key(owner))
    rows = SpendLimit.objects.using(using).order_by("scope", "key", "window")
    if key is not None:
        rows = rows.filter(scope="owner", key=key)
    for row in rows:
        value = spend_limits.value_of(row)
        yield documents.write({"kind": LIMIT, **{name: getattr(value, name) for name in _LIMIT}})
    for place, amount in sorted(spend_totals.read(using, owner=key).items()):
        values = dict(zip(_TOTAL, (*place[:3], place[3].isoformat(), *amount), strict=True))
        yield documents.write({"kind": TOTAL, **values})


class SpendImporter:
    """Limits and totals on their way into the database. A limit that is there stays. Of two totals the larger
    one stands, so that nothing counts twice. If `confined`, none comes in: they are an operator's."""

    def __init__(self, using: str, owner: Any, *, confined: bool = False) -> None:
        self.using = using
        self.owner = owner
        self.confined = confined
        self._totals: dict[Place, Spent] = {}

    def add(self, found: Mapping[str, str]) -> None:
        """Take a record; `InvalidExport` if it cannot come in."""
        if self.confined:
            return
        try:
            record = {name: json.loads(text) for name, text in found.items()}
            kind = record.pop("kind")
            if record["scope"] == "owner" and self.owner is not UNSET:
                if self.owner is None:
                    return  # the key may be another person's here
                record["key"] = key_of_owner(self.owner)
            if kind == LIMIT:
                self._limit(record)
            else:
                self._total(record)
        except (HelixSessionsError, TypeError, ValueError, KeyError) as error:
            raise InvalidExport(f"A {LIMIT} or {TOTAL} cannot come in: {error}") from None

    def flush(self) -> None:
        """Write the totals that were taken. What is here is folded before, so that they are compared with all
        of it."""
        if self._totals:
            spend_totals.fold(self.using)
            with transaction_on(self.using) as connection:
                spend_totals.add(connection, self._totals, larger=True)
            self._totals = {}

    def _limit(self, record: dict[str, Any]) -> None:
        selectors, values = spend_limits.checked(**record)
        with transaction_on(self.using):
            SpendLimit.objects.using(self.using).get_or_create(**selectors, defaults=values)

    def _total(self, record: dict[str, Any]) -> None:
        scope, key, window, starts_on, nano_usd, tokens = (record.pop(name) for name in _TOTAL)
        if record:
            raise InvalidExport(f"it has a {min(record)!r:.80}; was this made by a newer version?")
        inputs.choice(scope, SPEND_SCOPES, "The scope")
        inputs.choice(window, SPEND_WINDOWS, "The window")
        name = spend_limits.checked_key(scope, key or None) or ""
        first = FIRST_DAY if window == "total" else date.fromisoformat(starts_on)
        amount = Spent(_amount(nano_usd), _amount(tokens))
        place = (scope, name, window, first)
        before = self._totals.get(place, amount)
        self._totals[place] = Spent(*map(max, before, amount))
        if len(self._totals) >= _AT_ONCE:
            self.flush()


def _amount(value: Any) -> int:
    return max(-MOST, min(MOST, inputs.integer(value, "An amount", minimum=-inputs.MAX_INTEGER)))
