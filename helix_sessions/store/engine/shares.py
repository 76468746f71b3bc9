"""Fair shares: how many sessions of an owner or of an agent type run at once, over all workers.

What runs is what has a live lease, so the share of a worker that died comes back with its lease. Two claims
at once would both see the last share free; therefore a claim holds the names of its bounds until it commits,
and counts once more when it has them.
"""

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.conf import conf
from helix_sessions.exceptions import NotConfigured
from helix_sessions.models import Session
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import Dialect, dialect_of
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.tables import table
from helix_sessions.values.shares import AGENT_TYPE, OWNER, Bounds, problems

SHARE = "COALESCE(CAST(\"owner_id\" AS text), '')"
"""Whose turn a session belongs to: its owner's key as text, empty without one. An index has the same."""


def bounds() -> Bounds | None:
    """What `CONCURRENCY` says; `None` if it bounds nothing."""
    given = conf.CONCURRENCY
    if not given:
        return None
    for problem in problems(given):
        raise NotConfigured(f"HELIX_SESSIONS['CONCURRENCY']: {problem}")
    return Bounds.of(given)


def _of(bounds: Bounds, row: SessionRow) -> dict[str, int]:
    """The bounds of a session, by name."""
    found = {}
    if bounds.owner is not None and row.owner_id is not None:
        found[f"{OWNER}:{row.owner_id}"] = bounds.owner
    if row.agent_type in bounds.agent_types:
        found[f"{AGENT_TYPE}{row.agent_type}"] = bounds.agent_types[row.agent_type]
    return found


def has_room(connection: BaseDatabaseWrapper, row: SessionRow, *, taken: bool) -> bool:
    """Whether the locked session may run, beside those that do; with `taken` it is counted already. No other
    claim under the same bounds is decided before this transaction ends."""
    found = bounds()
    wanted = {} if found is None else _of(found, row)
    dialect = dialect_of(connection)
    for name in sorted(wanted):
        dialect.hold_name(connection, f"helix_sessions {name}")
    for name, most in wanted.items():
        column = "owner_id" if name.startswith(f"{OWNER}:") else "agent_type"
        value = table(Session).encoder(dialect, (column,))([getattr(row, column)])
        sql = f'SELECT count(*) FROM {table(Session).name} WHERE "{column}" = %s AND {leased(dialect)}'  # noqa: S608
        [[running]] = fetch(connection, sql, [*value, *dialect.lease_clock()])
        if running >= most + taken:
            return False
    return True


def running(connection: BaseDatabaseWrapper, bounds: Bounds) -> tuple[set[str], set[str]]:
    """The owners and the agent types that have all their shares."""
    dialect = dialect_of(connection)
    owners: set[str] = set()
    if bounds.owner is not None:
        found = fetch(
            connection, full_owners(dialect), [*dialect.lease_clock(), *dialect.parameters([bounds.owner])]
        )
        owners = {share for (share,) in found}
    counts = {}
    if bounds.agent_types:
        sql = (
            f'SELECT "agent_type", count(*) FROM {table(Session).name}'  # noqa: S608
            f' WHERE {leased(dialect)} GROUP BY "agent_type"'
        )
        counts = dict(fetch(connection, sql, dialect.lease_clock()))
    return owners, {name for name, most in bounds.agent_types.items() if counts.get(name, 0) >= most}


def full_owners(dialect: Dialect) -> str:
    """A query of the owners who have all their shares; its last parameter is how many these are."""
    return (
        f"SELECT {SHARE} AS share FROM {table(Session).name}"  # noqa: S608
        f' WHERE {leased(dialect)} AND "owner_id" IS NOT NULL GROUP BY 1 HAVING count(*) >= {dialect.number}'
    )


def leased(dialect: Dialect) -> str:
    """A condition: an owner has a live lease."""
    return f'"lease_owner" IS NOT NULL AND "lease_expires_at" > {dialect.lease_now}'
