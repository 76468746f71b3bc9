"""Finds the rows of a session by the key that encrypts them, which is the beginning of their text."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.session_tables import every_table
from helix_sessions.store.engine.tables import Table, table
from helix_sessions.store.maintenance import sql

Key: TypeAlias = tuple[Any, ...]
"""A row's primary key without the session."""


def tables() -> list[Table]:
    """The tables of a session that hold content."""
    return [table(model) for model in every_table() if table(model).content or table(model).digests]


def page(
    connection: BaseDatabaseWrapper, rows: Table, session_id: str, condition: str, size: int, after: Key = ()
) -> list[list[Any]]:
    """A page of whole rows that match, as they are stored, in the order of their key, after one of them."""
    dialect = dialect_of(connection)
    query = sql.page_of_rows(dialect, rows, rows.columns, after=bool(after), condition=condition)
    found = fetch(connection, query, [session_id, *after, size])
    decode = rows.decoder(rows.columns)
    return [decode(values) for values in found]


def pages(
    connection: BaseDatabaseWrapper, rows: Table, session_id: str, condition: str, size: int
) -> Iterator[tuple[Key, list[list[Any]]]]:
    """The pages, each with the key it comes after."""
    after: Key = ()
    while found := page(connection, rows, session_id, condition, size, after):
        yield after, found
        after = tuple(found[-1][rows.columns.index(name)] for name in rows.key[1:])
        if not after or len(found) < size:
            return
