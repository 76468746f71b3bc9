"""How what a unit of work collected reaches the database: the store's own SQL for writing, all of it here.

There are three ways, and each passes the same tests. `table_by_table` runs on any engine. On PostgreSQL
`in_one_statement` sends everything at once. `if_unchanged` does without the reading that comes before, for a
row this connection wrote last (see `known_rows`).
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.db import models

from helix_sessions.conf import conf
from helix_sessions.models import Session
from helix_sessions.models.fields import DocumentField
from helix_sessions.store.engine import remembered_rows
from helix_sessions.store.engine.connection import execute, execute_all, fetch, lock_timeout
from helix_sessions.store.engine.remembered_rows import KnownRow
from helix_sessions.store.engine.tables import insert_sql, replace_sql, table, update_sql

if TYPE_CHECKING:
    from helix_sessions.store.engine.unit_of_work import UnitOfWork

_KNOWN_BY = ("lease_owner", "version", "head_seq", "fence", "write_mark")
"""By what a row is told from one of another history, whatever the engine says. The first may be null."""
_ROWS_PER_STATEMENT = 500
_ROWS_WORTH_PREPARING = 24
_CHANGES_AT_ONCE = 24


def all_of(work: "UnitOfWork") -> str | None:
    """Flush a write that was decided under the lock; the row's new mark, if the engine tells it unasked."""
    connection = work.connection
    if work.ahead:
        execute_all(connection, work.ahead)
    if connection.vendor == "postgresql" and not conf.PORTABLE_WRITES:
        return in_one_statement(work)
    table_by_table(work)
    return None


def table_by_table(work: "UnitOfWork") -> None:
    """One statement for each table."""
    execute_all(work.connection, _all_statements(work))


def in_one_statement(work: "UnitOfWork") -> str | None:
    """All but the last change are common table expressions of the last. Returns the session row's `xmin`.

    They see the tables as before the statement, so no row may be touched by two of them, and none is:
    each table is written once, and the session's row by the last. Long lists go ahead in pieces, and so
    do changes beyond the first few: what a statement costs to plan grows faster than it does.
    """
    parts = [*_short_insertions(work), *work.statements]
    update = _session_update(work)
    parts.extend((f"{sql} RETURNING xmin::text", params) for sql, params in update)
    if not parts:
        return None
    ahead = len(parts) - _CHANGES_AT_ONCE
    if ahead > 0:
        execute_all(work.connection, parts[:ahead])
        parts = parts[ahead:]
    *first, (last, last_params) = parts
    steps = ", ".join(f"w{number} AS ({sql})" for number, (sql, _) in enumerate(first))
    sql = f"WITH {steps} {last}" if steps else last
    params = [param for _, some in first for param in some] + last_params
    if not update:
        execute(work.connection, sql, params)
        return None
    return str(fetch(work.connection, sql, params)[0][0])


def if_unchanged(work: "UnitOfWork", known: KnownRow) -> str | None:
    """Flush a write that was decided on a remembered row, if the row still is that one.

    Returns the row's new mark, or `None` when nothing was written: the row has changed, or the write is
    not of the plain kind this is made for.
    """
    if work.ahead or not work.changes:
        return None
    if work.connection.vendor == "postgresql":
        return _if_unchanged_on_postgresql(work, known)
    return _if_unchanged_on_sqlite(work, known)


def _if_unchanged_on_sqlite(work: "UnitOfWork", known: KnownRow) -> str | None:
    """In a transaction of its own, begun and ended here: Django's costs as much as the statements in it."""
    connection = work.connection
    others, own = known.mark.split()
    if own != remembered_rows.own_changes(connection):
        return None
    update = f"{update_sql(Session, tuple(work.changes), ('session_id',))} AND {_same('IS')}"
    execute(connection, "BEGIN IMMEDIATE", [])
    try:
        if remembered_rows.sqlite_mark(connection) != known.mark:
            return None
        first = update, _update_params(work, known)
        rest = [*_short_insertions(work), *work.statements, ("COMMIT", ())]
        if execute_all(connection, [first, *rest], only_if_first=True):
            return f"{others} {remembered_rows.own_changes(connection)}"
        return None
    finally:
        if connection.connection.in_transaction:
            connection.connection.rollback()


def _if_unchanged_on_postgresql(work: "UnitOfWork", known: KnownRow) -> str | None:
    if work.statements or any(len(rows) > _ROWS_WORTH_PREPARING for rows in work.inserts.values()):
        return None
    vendor = work.connection.vendor
    columns = tuple(work.changes)
    params = [*_update_params(work, known), known.mark, lock_timeout()]
    for model, rows in work.inserts.items():
        encode = table(model).encoder(vendor, table(model).columns)
        for row in rows:
            params += encode(row)
    inserts = tuple((model, len(rows), model in work.replacing) for model, rows in work.inserts.items())
    sql = _if_unchanged_sql(columns, inserts)
    written = fetch(work.connection, sql, params)
    return written[0][0] if written else None


@lru_cache(maxsize=256)
def _if_unchanged_sql(
    columns: tuple[str, ...], inserts: tuple[tuple[type[models.Model], int, bool], ...]
) -> str:
    changes = ", ".join(f'"{column}" = %s' for column in columns)
    steps = [
        f'taken AS (UPDATE {table(Session).name} SET {changes} WHERE "session_id" = %s'  # noqa: S608
        f" AND {_same('IS NOT DISTINCT FROM')} AND xmin = %s::xid"
        " AND set_config('lock_timeout', %s, true) IS NOT NULL RETURNING xmin)"
    ]
    for number, (model, rows, replacing) in enumerate(inserts):
        names = ", ".join(f'"{column}"' for column in table(model).columns)
        first = ", ".join(f"%s::{_type_of(field)}" for field in table(model).fields.values())
        others = f", ({', '.join(['%s'] * len(table(model).columns))})" * (rows - 1)
        steps.append(
            f"w{number} AS (INSERT INTO {table(model).name} ({names})"  # noqa: S608
            f" SELECT new.* FROM taken, (VALUES ({first}){others}) AS new"
            f"{' ' + replace_sql(model) if replacing else ''})"
        )
    return f"WITH {', '.join(steps)} SELECT xmin::text FROM taken"  # noqa: S608


def _same(equals: str) -> str:
    """A condition: the row is the one that was remembered. `equals` compares what may be null."""
    others = " AND ".join(f'"{name}" = %s' for name in _KNOWN_BY[1:])
    return f'"{_KNOWN_BY[0]}" {equals} %s AND {others}'


def _update_params(work: "UnitOfWork", known: KnownRow) -> list[Any]:
    """The changes of the session's row, its key, and what the remembered row was known by."""
    vendor = work.connection.vendor
    encode = table(Session).encoder(vendor, (*work.changes, "session_id"))
    params = encode([*work.changes.values(), work.session.session_id])
    owner, *numbers = [known.values[name] for name in _KNOWN_BY]
    return [*params, owner, *(map(str, numbers) if vendor == "postgresql" else numbers)]


def _type_of(field: "models.Field[Any, Any]") -> str:
    if isinstance(field, DocumentField):
        return "json"
    if isinstance(field, models.DateTimeField):
        return "timestamptz"
    if isinstance(field, models.BooleanField):
        return "boolean"
    return "bigint" if isinstance(field, models.IntegerField) else "text"


def _all_statements(work: "UnitOfWork") -> list[tuple[str, list[Any]]]:
    return [*_short_insertions(work), *work.statements, *_session_update(work)]


def _short_insertions(work: "UnitOfWork") -> Iterator[tuple[str, list[Any]]]:
    """The insertions worth preparing; long ones are executed on the way."""
    for sql, params, rows in _insertions(work):
        if rows <= _ROWS_WORTH_PREPARING:
            yield sql, params
        else:
            execute(work.connection, sql, params, prepare=False)


def _insertions(work: "UnitOfWork") -> Iterator[tuple[str, list[Any], int]]:
    for model, rows in work.inserts.items():
        columns = table(model).columns
        encode = table(model).encoder(work.connection.vendor, columns)
        for start in range(0, len(rows), _ROWS_PER_STATEMENT):
            some = rows[start : start + _ROWS_PER_STATEMENT]
            params = [value for row in some for value in encode(row)]
            sql = insert_sql(model, columns, len(some), replacing=model in work.replacing)
            yield sql, params, len(some)


def _session_update(work: "UnitOfWork") -> list[tuple[str, list[Any]]]:
    if work.new or not work.changes:
        return []
    columns = tuple(work.changes)
    encode = table(Session).encoder(work.connection.vendor, (*columns, "session_id"))
    params = encode([*work.changes.values(), work.session.session_id])
    return [(update_sql(Session, columns, ("session_id",)), params)]
