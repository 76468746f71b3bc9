"""Spend limits: set, listed, deleted, and how they stand."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from helix_sessions import models
from helix_sessions.exceptions import InvalidInput, NotFound
from helix_sessions.store.engine import inputs, spending
from helix_sessions.store.engine.connection import fetch, transaction_on
from helix_sessions.store.engine.spending import NANO, Standing, Standings
from helix_sessions.store.engine.store import Store
from helix_sessions.store.limits import spend_totals, sql
from helix_sessions.types import (
    SPEND_SCOPES,
    SPEND_WINDOWS,
    UNSET,
    SpendLimit,
    SpendScope,
    SpendStatus,
    SpendWindow,
)

MAX_USD = 10**9 - 1


def set_spend_limit(
    store: Store,
    *,
    scope: SpendScope,
    key: Any = None,
    window: SpendWindow,
    usd: float | Decimal | None = None,
    tokens: int | None = None,
    warn_at: float | None = None,
    enabled: bool = True,
) -> SpendLimit:
    """Limit what an owner, an agent type or all together may spend in a day, a month or in total, in US
    dollars, in tokens or in both. `key` is the owner's primary key, or the agent type; `all` has none.

    A limit with the same scope, key and window takes the place of the one before. What was spent earlier
    in the window counts. At `warn_at`, a share of the limit, one warning is sent in each window.
    """
    _check_scope(store)
    selectors, values = checked(
        scope=scope, key=key, window=window, usd=usd, tokens=tokens, warn_at=warn_at, enabled=enabled
    )
    with transaction_on(store.using):
        rows = models.SpendLimit.objects.using(store.using)
        row, _ = rows.update_or_create(**selectors, defaults=values)
    spend_totals.fold(store.using)
    return value_of(row)


def list_spend_limits(store: Store) -> list[SpendLimit]:
    """All limits, by scope, key and window."""
    _check_scope(store)
    rows = models.SpendLimit.objects.using(store.using).order_by("scope", "key", "window")
    return [value_of(row) for row in rows]


def delete_spend_limit(store: Store, limit_id: str) -> None:
    """Delete a limit; `NotFound` if there is none. What was spent stays counted."""
    _check_scope(store)
    key = inputs.identifier(limit_id, "The limit id")
    with transaction_on(store.using):
        deleted, _ = models.SpendLimit.objects.using(store.using).filter(limit_id=key).delete()
    if not deleted:
        raise NotFound(f"There is no spend limit {key!r:.100}.")


def spend_status(store: Store, *, owner: Any = None, agent_type: str | None = None) -> list[SpendStatus]:
    """What was used of the limits that are enabled, in their current windows: of an owner's, of an agent
    type's, of both, or of all limits there are. A store of one owner tells of that owner's alone.
    """
    if store._owner is not UNSET:
        if agent_type is not None or inputs.owner_key(owner) not in (None, store._owner):
            raise InvalidInput("A store of one owner tells what that owner has spent.")
        owner = store._owner
    kind = inputs.optional_identifier(agent_type, "agent_type")
    found = standings(store, owner=inputs.owner_key(owner), agent_type=kind)
    return [status_of(standing) for standing in found]


def standings(
    store: Store,
    *,
    owner: Any = None,
    agent_type: str | None = None,
    limit_ids: Sequence[str] | None = None,
    enabled: bool = True,
) -> Standings:
    """How limits stand: those of an owner or an agent type, those with these ids, or all."""
    dialect, days = store._dialect, spending.starts(spending.today())
    keys = {"owner": owner, "agent_type": agent_type}
    keys = {scope: str(key) for scope, key in keys.items() if key is not None}
    named = None if limit_ids is None else len(limit_ids)
    text = spending.standings_sql(dialect, sql.chosen(tuple(keys), named, enabled))
    params = [*(days[window] for window in SPEND_WINDOWS), *keys.values(), *(limit_ids or ())]
    return spending.read_standings(fetch(store._connection, text, dialect.parameters(params)))


def status_of(standing: Standing) -> SpendStatus:
    """A standing as callers see it."""
    return SpendStatus(
        scope=standing.scope,  # type: ignore[arg-type]
        key=standing.key,
        window=standing.window,  # type: ignore[arg-type]
        used_usd=standing.used.nano_usd / NANO,
        used_tokens=standing.used.tokens,
        limit_usd=None if standing.nano_usd is None else standing.nano_usd / NANO,
        limit_tokens=standing.tokens,
        resets_at=standing.resets_at,
    )


def value_of(row: models.SpendLimit) -> SpendLimit:
    """The value of a row."""
    return SpendLimit(
        limit_id=row.limit_id,
        scope=row.scope,
        key=row.key,
        window=row.window,
        usd=None if row.usd is None else float(row.usd),
        tokens=row.tokens,
        warn_at=row.warn_at,
        enabled=row.enabled,
    )


def checked(
    *, scope: Any, key: Any, window: Any, usd: Any, tokens: Any, warn_at: Any, enabled: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a limit is known by, and what it says, as columns."""
    selectors: dict[str, Any] = {
        "scope": inputs.choice(scope, SPEND_SCOPES, "The scope"),
        "window": inputs.choice(window, SPEND_WINDOWS, "The window"),
        "key": checked_key(scope, key),
    }
    values = {
        "usd": None if usd is None else _usd(usd),
        "tokens": inputs.optional_integer(tokens, "tokens"),
        "warn_at": None if warn_at is None else _share(warn_at),
        "enabled": inputs.flag(enabled, "enabled"),
    }
    if usd is None and tokens is None:
        raise InvalidInput("A spend limit needs usd, tokens or both.")
    return selectors, values


def _check_scope(store: Store) -> None:
    if store._owner is not UNSET:
        raise InvalidInput("Spend limits hold for all owners; use a store without an owner.")


def checked_key(scope: str, key: Any) -> str | None:
    """Whose limit it is: an owner's key as text, an agent type, or empty for all together."""
    if scope == "all":
        if key is not None:
            raise InvalidInput("A limit for all has no key.")
        return None
    if key is None:
        raise InvalidInput(f"A limit of the scope {scope} needs a key.")
    if scope == "owner":
        return inputs.identifier(spending.key_of_owner(inputs.required_owner_key(key)), "The key")
    return inputs.identifier(key, "The key")


def _usd(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise InvalidInput("usd must be a number of US dollars.")
    try:
        amount = Decimal(str(value))
        exact = amount.quantize(Decimal(1).scaleb(-9))
    except InvalidOperation:
        exact = amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount <= MAX_USD:
        raise InvalidInput(f"usd must be between 0 and {MAX_USD}.")
    return exact


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InvalidInput("warn_at must be a share of the limit: more than 0, and 1 at most.")
    return float(value)
