"""The rows of a session whose content is sealed in a certain way: found by how their text begins."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content.encryption import SEALED, VEILED, Keyring
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_tables import every_table
from helix_sessions.store.engine.tables import Table, table

Key: TypeAlias = tuple[Any, ...]
"""A row's primary key, but for the session."""


def tables() -> list[Table]:
    """The tables of a session that hold content."""
    return [table(model) for model in every_table() if table(model).content or table(model).digests]


def sealed(vendor: str, rows: Table) -> str:
    """A condition: something of the row is sealed."""
    return " OR ".join(_begins(vendor, name, SEALED) for name in rows.content)


def stale(vendor: str, rows: Table, ring: Keyring) -> str:
    """A condition: something of the row is not sealed as the ring would seal it now."""
    if ring.active is None:
        wrong = [_begins(vendor, name, SEALED) for name in rows.content]
        wrong += [_begins(vendor, name, VEILED) for name in rows.digests]
    else:
        wrong = [f"NOT {_begins(vendor, name, ring.prefix)}" for name in rows.content]
        wrong += [
            f"(\"{name}\" <> '' AND NOT {_begins(vendor, name, ring.veil_prefix)})" for name in rows.digests
        ]
    return " OR ".join(wrong)  # a column that is null fits neither


def _begins(vendor: str, column: str, text: str) -> str:
    """Key ids are letters, digits, - and _, so the text needs no quoting."""
    cast = "::text" if vendor == "postgresql" else ""
    return f"(substr(\"{column}\"{cast}, 1, {len(text)}) = '{text}')"


def page(
    connection: BaseDatabaseWrapper, rows: Table, session_id: str, condition: str, size: int, after: Key = ()
) -> list[list[Any]]:
    """Rows that fit, whole, as they are stored, in the order of their key, from behind one on."""
    names = ", ".join(f'"{name}"' for name in rows.key[1:])
    rest = f" AND ({names}) > ({', '.join(['%s'] * len(after))})" if after else ""
    found = fetch(
        connection,
        f"SELECT {rows.selection(connection.vendor, rows.columns)} FROM {rows.name}"  # noqa: S608
        f' WHERE "session_id" = %s AND ({condition}){rest}'
        f"{f' ORDER BY {names}' if names else ''} LIMIT %s",
        [session_id, *after, size],
    )
    decode = rows.decoder(rows.columns)
    return [decode(values) for values in found]


def pages(
    connection: BaseDatabaseWrapper, rows: Table, session_id: str, condition: str, size: int
) -> Iterator[tuple[Key, list[list[Any]]]]:
    """Page after page, each with the key it comes after."""
    after: Key = ()
    while found := page(connection, rows, session_id, condition, size, after):
        yield after, found
        after = tuple(found[-1][rows.columns.index(name)] for name in rows.key[1:])
        if not after or len(found) < size:
            return
