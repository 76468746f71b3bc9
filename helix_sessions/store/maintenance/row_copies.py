"""Rows of any table, read from one database and put into another."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.store.engine.connection import execute, fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.tables import insert_sql, table
from helix_sessions.store.maintenance import sql


def read_rows(
    connection: BaseDatabaseWrapper,
    model: type[models.Model],
    column: str,
    value: Any,
    *,
    locked: bool = True,
) -> list[dict[str, Any]]:
    """The rows of a table that have a value in a column, by column; content is opened."""
    columns, dialect = table(model).columns, dialect_of(connection)
    text = sql.rows_with(dialect, table(model), column)
    params = dialect.parameters([value if isinstance(value, int) else str(value)])
    if locked:
        text, params = dialect.locking(text), [*params, *dialect.waiting()]
    decode = table(model).decoder(columns)
    found = fetch(connection, text, params)
    return [dict(zip(columns, table(model).opened(columns, decode(row)), strict=True)) for row in found]


def put_rows(
    connection: BaseDatabaseWrapper,
    model: type[models.Model],
    rows: list[dict[str, Any]],
    *,
    without: str | None = None,
) -> None:
    """Insert rows in the place of those that have their keys. `without` a column that this database numbers
    itself, those that are there stay."""
    columns = tuple(name for name in table(model).columns if name != without)
    encode = table(model).encoder(dialect_of(connection), columns)
    text = insert_sql(model, columns, 1, replacing=without is None, skipping=without is not None)
    for row in rows:
        execute(connection, text, encode([row[name] for name in columns]), prepare=False)
