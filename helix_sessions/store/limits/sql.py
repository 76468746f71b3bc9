"""The statements of spending: entries taken out, totals added to."""

from functools import cache

from helix_sessions.models import SpendEntry, SpendTotal
from helix_sessions.store.engine.tables import insert_sql, table

ENTRY = ("day", "owner_key", "agent_type", "nano_usd", "tokens")
MOST = 4 * 10**18
"""What a total stops at: two of them still fit into a column."""


@cache
def chosen(scopes: tuple[str, ...], named: int | None, enabled: bool) -> str:
    """A condition on limits: of a key in each of these scopes, so many by their ids, only enabled ones."""
    conditions = ['"enabled"'] if enabled else []
    if scopes:
        of_scopes = [f'("scope" = \'{scope}\' AND "key" = %s)' for scope in scopes]
        conditions.append(f"({' OR '.join(of_scopes)})")
    if named is not None:
        conditions.append(f'"limit_id" IN ({", ".join(["%s"] * named) or "NULL"})')
    return " AND ".join(conditions) or "1 = 1"


@cache
def take_entries(owned: bool) -> str:
    """Remove some entries and return them. Those that a turn is writing now are left for the next time."""
    entries = table(SpendEntry).name
    returned = ", ".join(f'"{name}"' for name in ENTRY)
    return (
        f'DELETE FROM {entries} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {entries}{_of(owned)} ORDER BY "day"'  # noqa: S608
        f" LIMIT %s FOR UPDATE SKIP LOCKED)) RETURNING {returned}"
    )


@cache
def find_entries(owned: bool) -> str:
    """The same where one transaction writes at a time: the entries, each after its place in the table."""
    columns = ", ".join(f'"{name}"' for name in ENTRY)
    return f"SELECT rowid, {columns} FROM {table(SpendEntry).name}{_of(owned)} ORDER BY rowid LIMIT %s"  # noqa: S608


@cache
def remove_entries(owned: bool) -> str:
    """Remove what was found, up to the last place."""
    condition = f"{_of(owned)} AND" if owned else " WHERE"
    return f"DELETE FROM {table(SpendEntry).name}{condition} rowid <= %s"  # noqa: S608


def _of(owned: bool) -> str:
    return ' WHERE "owner_key" = %s' if owned else ""


@cache
def add_totals(rows: int, *, larger: bool = False) -> str:
    """Add to totals, or with `larger` let the larger of two amounts stand."""
    totals = table(SpendTotal)
    keys = ", ".join(f'"{name}"' for name in totals.key)
    changes = ", ".join(f'"{name}" = {_sum(name, larger)}' for name in ("nano_usd", "tokens"))
    return f"{insert_sql(SpendTotal, totals.columns, rows)} ON CONFLICT ({keys}) DO UPDATE SET {changes}"


def _sum(name: str, larger: bool) -> str:
    before, new = f'{table(SpendTotal).name}."{name}"', f'excluded."{name}"'
    if larger:
        return f"CASE WHEN {before} > {new} THEN {before} ELSE {new} END"
    return f"CASE WHEN {before} + {new} > {MOST} THEN {MOST} ELSE {before} + {new} END"


@cache
def read_all(owned: bool) -> str:
    """All totals and entries, or those of one owner, in one statement: an entry is not seen twice while it is
    folded. An entry has its owner and agent type in place of scope and key, and no window."""
    totals, entries = table(SpendTotal).name, table(SpendEntry).name
    where = ' WHERE "scope" = \'owner\' AND "key" = %s' if owned else ""
    return (
        f'SELECT "scope", "key", "window", "starts_on", "nano_usd", "tokens" FROM {totals}{where}'  # noqa: S608
        ' UNION ALL SELECT "owner_key", "agent_type", NULL, "day", "nano_usd", "tokens"'
        f" FROM {entries}{_of(owned)}"
    )
