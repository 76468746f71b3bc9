"""What a session has used: the running totals of its runs, kept in its row."""

from collections.abc import Iterator, Sequence
from typing import Any

from helix_sessions.content import documents
from helix_sessions.messages.usage import totals_of, usage_of
from helix_sessions.models import Session
from helix_sessions.store.engine import inputs, spending
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import sql
from helix_sessions.types import UNSET, UsageTotals

_COLUMNS = ("usage", "owner_id")


def get_usage(store: Store, session_id: str, *, tree: bool = False) -> UsageTotals:
    """What a session has used; with `tree`, it and all sessions below it."""
    whole = inputs.flag(tree, "tree")
    total = read(store._read(session_id, ("usage",)).usage)
    if not whole:
        return total
    decode = table(Session).decoder(_COLUMNS)
    for row in _below(store, session_id):
        usage, owner = decode(row)
        if store._owner in (UNSET, owner):
            total += read(usage)
    return total


def _below(store: Store, session_id: str) -> Iterator[Sequence[Any]]:
    """What is counted of the sessions below one, each once, also in a circle."""
    if store._dialect.recurses_over_sessions:
        yield from fetch(store._connection, sql.used_below(store._dialect, _COLUMNS), [session_id])
        return
    seen, level = {session_id}, [session_id]
    while level:
        condition, parents = store._dialect.among('"parent_session_id"', level)
        query = sql.children(store._dialect, ("session_id", *_COLUMNS), condition)
        found = {row[0]: row[1:] for row in fetch(store._connection, query, [parents]) if row[0] not in seen}
        yield from found.values()
        level = list(found)
        seen |= found.keys()


def add(work: UnitOfWork, report: Any) -> None:
    """Count what a turn of the locked session used in; `report` is what its agent says."""
    if report is not None:
        _add(work, totals_of(report))
        _spend(work, None, report)


def replace(work: UnitOfWork, before: Any, text: str | None) -> None:
    """A run of the locked session has another report than before; the totals follow."""
    if text is not None:
        report = documents.load(text)
        _add(work, totals_of(report) - totals_of(before))
        _spend(work, before, report)


def read(text: str | None) -> UsageTotals:
    """The totals of a session's row."""
    return UsageTotals() if text is None else totals_of(documents.load(text))


def _spend(work: UnitOfWork, before: Any, report: Any) -> None:
    """Count for the limits of spending by how much a report exceeds the one before."""
    old, new = usage_of(before), usage_of(report)
    work.spend(spending.spent(new.cost - old.cost, new.tokens - old.tokens))


def _add(work: UnitOfWork, more: UsageTotals) -> None:
    if more:
        work.change(usage=documents.write(dict(read(work.session.usage) + more)))
