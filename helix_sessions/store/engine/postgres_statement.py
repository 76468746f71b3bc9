"""All that a unit of work writes on PostgreSQL, as the text of one statement."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from django.db import models

from helix_sessions.models import Session
from helix_sessions.models.fields import DocumentField
from helix_sessions.store.engine import flush
from helix_sessions.store.engine.moves import REFUSAL
from helix_sessions.store.engine.tables import insert_sql, replace_sql, table, update_sql

WAIT = "set_config('lock_timeout', %s, true) IS NOT NULL"
"""A condition that is always true and sets how long the statement it is in waits for locks: conditions are
evaluated before a row is locked, so it takes no statement of its own."""

Inserted: TypeAlias = tuple[type[models.Model], int, bool]
"""So many rows of a table, and whether they take the place of others."""


@lru_cache(maxsize=512)
def statement(
    columns: tuple[str, ...],
    inserted: tuple[Inserted, ...],
    others: tuple[str, ...],
    *,
    guarded: bool,
    asked: str | None = None,
) -> str:
    """All that a unit of work writes, in one statement: changes of the session's row, new rows, and others.
    It returns the `xmin` of the session's row, if that is changed, and the answer to what is `asked`.

    All but the last part are common table expressions. They see the tables as before the statement, so no
    row may be touched by two of them, and none is: each table is written once. `guarded`, everything depends
    on the session's row being the one that is known: new rows are selected from its update, and the others,
    each of which ends in a condition, are made only with it.
    """
    returned = "" if asked is None else f", {as_json(asked)}"
    update = update_sql(Session, columns, ("session_id",))
    update = f"{update}{_GUARD if guarded else ''} RETURNING xmin::text AS row_version"
    if guarded:
        parts = [update, *_with_the_row(inserted, others)]
        last = f"SELECT row_version{returned} FROM w0"  # noqa: S608
    else:
        parts = [*(_insert_sql(*rows, guarded=False) for rows in inserted), *others]
        last = f"{update}{returned}" if columns else parts.pop()
    steps = _steps(parts)
    return f"WITH {steps} {last}" if steps else last


@lru_cache(maxsize=512)
def creation(inserted: tuple[Inserted, ...], others: tuple[str, ...]) -> str:
    """A new session's row and all that is written with it, in one statement. It returns whether the session
    is refused, and the `xmin` of its row, if its id was not taken."""
    session = table(Session)
    names = ", ".join(f'"{column}"' for column in session.columns)
    values = ", ".join(["%s"] * len(session.columns))
    row = (
        f"INSERT INTO {session.name} ({names}) SELECT {values} FROM refused WHERE why IS NULL AND {WAIT}"  # noqa: S608
        " ON CONFLICT DO NOTHING RETURNING xmin::text AS row_version"
    )
    steps = _steps([row, *_with_the_row(inserted, others)])
    return (
        f"WITH refused AS MATERIALIZED (SELECT {REFUSAL} AS why), {steps}"  # noqa: S608
        " SELECT why IS NOT NULL, (SELECT row_version FROM w0) FROM refused"
    )


def _steps(parts: Sequence[str]) -> str:
    return ", ".join(f"w{number} AS ({sql})" for number, sql in enumerate(parts))


def _with_the_row(inserted: tuple[Inserted, ...], others: tuple[str, ...]) -> list[str]:
    """What is only written if the first step has written the session's row."""
    rows = [_insert_sql(*some, guarded=True) for some in inserted]
    return [*rows, *(f"{text} AND EXISTS (SELECT FROM w0)" for text in others)]


def as_json(query: str) -> str:
    """The rows of a query as one value."""
    return f"(SELECT COALESCE(json_agg(q), '[]')::text FROM ({query}) q)"  # noqa: S608


def _insert_sql(model: type[models.Model], rows: int, replacing: bool, guarded: bool) -> str:
    columns = table(model).columns
    if not guarded:
        return insert_sql(model, columns, rows, replacing=replacing)
    names = ", ".join(f'"{column}"' for column in columns)
    first = ", ".join(f"%s::{_type_of(field)}" for field in table(model).fields.values())
    others = f", ({', '.join(['%s'] * len(columns))})" * (rows - 1)
    return (
        f"INSERT INTO {table(model).name} ({names})"  # noqa: S608
        f" SELECT new.* FROM w0, (VALUES ({first}){others}) AS new"
        f"{' ' + replace_sql(model) if replacing else ''}"
    )


def _type_of(field: "models.Field[Any, Any]") -> str:
    if isinstance(field, DocumentField):
        return "json"
    if isinstance(field, models.DateTimeField):
        return "timestamptz"
    if isinstance(field, models.DateField):
        return "date"
    if isinstance(field, models.BooleanField):
        return "boolean"
    return "bigint" if isinstance(field, models.IntegerField) else "text"


_GUARD = f" AND {flush.guard('IS NOT DISTINCT FROM')} AND xmin = %s::xid AND {WAIT}"
