"""The parts of a flush that the dialects share: what a unit of work collected, as statements."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from django.db import models, transaction

from helix_sessions.exceptions import SessionExists
from helix_sessions.models import Session
from helix_sessions.store.engine import moves, spending
from helix_sessions.store.engine.connection import execute, execute_all, fetch
from helix_sessions.store.engine.dialect import Dialect, Statement
from helix_sessions.store.engine.remembered_rows import KnownRow
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.tables import insert_sql, table, update_sql

if TYPE_CHECKING:
    from helix_sessions.store.engine.unit_of_work import UnitOfWork

ROWS_WORTH_PREPARING = 24
_ROWS_PER_STATEMENT = 500
_KNOWN_BY = ("lease_owner", "version", "head_seq", "fence", "write_mark")
"""By what a row is told from one of another history, on any database. The first may be null."""


def statement_by_statement(work: "UnitOfWork") -> None:
    """Write one table after the other, and the session's row last. Works on any database."""
    ask(work)
    if work.ahead:
        execute_all(work.connection, work.ahead)
    execute_all(work.connection, [*insert_statements(work), *work.statements, *session_update(work)])


def ask(work: "UnitOfWork") -> None:
    """Answer what a unit of work asks, before it is written."""
    if work.question is not None:
        work.answer = fetch(work.connection, *work.question)


def insert_statements(work: "UnitOfWork") -> Iterator[Statement]:
    """The insertions that are worth preparing; long ones are executed on the way."""
    for model, rows, params in short_insertions(work):
        yield _insert_sql(work, model, rows), params


def short_insertions(work: "UnitOfWork") -> Iterator[tuple[type[models.Model], int, list[Any]]]:
    """The insertions that are worth preparing: table, number of rows, parameters. Long ones are executed on
    the way."""
    for model, rows in work.inserts.items():
        encode = table(model).encoder(work.dialect, table(model).columns)
        for start in range(0, len(rows), _ROWS_PER_STATEMENT):
            some = rows[start : start + _ROWS_PER_STATEMENT]
            params = [value for row in some for value in encode(row)]
            if len(some) <= ROWS_WORTH_PREPARING:
                yield model, len(some), params
            else:
                execute(work.connection, _insert_sql(work, model, len(some)), params, prepare=False)


def _insert_sql(work: "UnitOfWork", model: type[models.Model], rows: int) -> str:
    return insert_sql(model, table(model).columns, rows, replacing=model in work.replacing)


def session_insert(work: "UnitOfWork") -> Statement:
    """The insertion of a new session's row, which touches nothing if there is one with its id."""
    encode = table(Session).encoder(work.dialect, ALL_COLUMNS)
    params = encode([getattr(work.session, column) for column in ALL_COLUMNS])
    return insert_sql(Session, ALL_COLUMNS, 1, skipping=True), params


def insert_session(work: "UnitOfWork", sql: str, params: Sequence[Any]) -> None:
    """Insert a new session's row. The statement itself asks whether the session is refused, so that creation
    takes no other."""
    rows = fetch(work.connection, f"{sql} RETURNING {moves.REFUSAL}", [*params, *refusal_params(work)])
    check_insertion(work, inserted=bool(rows), refusal=rows[0][0] if rows else None)


def refusal_params(work: "UnitOfWork") -> list[str]:
    """Of `moves.REFUSAL`: a session that is in another cell, or whose owner is, is refused. The children of a
    session that is here may be created here."""
    session = work.session
    tenant = spending.key_of_owner(session.owner_id) if session.parent_session_id is None else ""
    return [session.session_id, tenant or moves.NO_TENANT]


def check_insertion(work: "UnitOfWork", *, inserted: bool, refusal: str | None) -> None:
    """Raise `SessionExists` if the id was taken; undo the insertion of a session that is refused."""
    if not inserted:
        raise SessionExists(f"There is a session {work.session.session_id!r} already.")
    if refusal is not None:
        transaction.set_rollback(True, using=work.connection.alias)
        moves.refuse_new(refusal, work.session.session_id)


def session_update(work: "UnitOfWork") -> list[Statement]:
    """The change of the session's row, if it has any and is not new."""
    if work.new or not work.changes:
        return []
    return [(update_sql(Session, tuple(work.changes), ("session_id",)), update_params(work))]


def update_params(work: "UnitOfWork") -> list[Any]:
    """The changes of the session's row, and its key."""
    encode = table(Session).encoder(work.dialect, (*work.changes, "session_id"))
    return encode([*work.changes.values(), work.session.session_id])


def guard(equals: str) -> str:
    """A condition: the row is the one that was remembered. `equals` compares what may be null."""
    others = " AND ".join(f'"{name}" = %s' for name in _KNOWN_BY[1:])
    return f'"{_KNOWN_BY[0]}" {equals} %s AND {others}'


def guard_params(dialect: Dialect, known: KnownRow) -> list[Any]:
    """What the remembered row is known by."""
    return dialect.parameters([known.values[name] for name in _KNOWN_BY])
