"""The database as it was before a test, or a row of one, that committed."""

from functools import cache
from typing import Any

from django.db import connection, connections, transaction

from helix_sessions.models import Session
from helix_sessions.store.engine.citus import ONE_CONNECTION
from helix_sessions.store.engine.connection_cache import cache_of
from tests import citus

KEPT = {"django_migrations", "django_content_type", "auth_permission"}
"""What `migrate` wrote, and no test changes."""


def delete_rows() -> None:
    """Delete the rows of those tables that have any, which takes a tenth of Django's `flush`.

    Sessions come first: the database guards the log of those that live.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        if citus.WORKERS:
            cursor.execute(ONE_CONNECTION)
        for table in _filled(cursor):
            cursor.execute(f'DELETE FROM "{table}"')


class Snapshot:
    """All rows as they are now."""

    def __init__(self) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            self._tables = {table: _copy(cursor, table) for table in _filled(cursor)}

    def restore(self) -> None:
        """Put them back in the place of all others, of which the connection forgets what it remembers."""
        with transaction.atomic():
            delete_rows()
            with connection.cursor() as cursor:
                for table, rows in self._tables.items():
                    _paste(cursor, table, rows)
        forget_rows()


def forget_rows() -> None:
    """Let the store remember no row that this connection wrote. On PostgreSQL a new one is slow to begin."""
    if connection.vendor == "postgresql":
        cache_of(connections[connection.alias]).rows = None  # not of the proxy
    else:
        connection.close()


def _filled(cursor: Any) -> list[str]:
    if citus.WORKERS:  # which would make a table of each part of a statement about all
        return [name for name in _tables() if cursor.execute(_any_row(name)).fetchall()]
    cursor.execute(_filled_statement())
    return [name for [name] in cursor.fetchall()]


@cache
def _filled_statement() -> str:
    return " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS ({_any_row(name)})" for name in _tables())


def _any_row(name: str) -> str:
    return f'SELECT 1 FROM "{name}" LIMIT 1'


@cache
def _tables() -> list[str]:
    known = set(connection.introspection.django_table_names(only_existing=True, include_views=False))
    first = Session._meta.db_table
    return [first, *sorted(known - KEPT - {first})]


def _copy(cursor: Any, table: str) -> Any:
    if connection.vendor == "postgresql":
        with cursor.copy(f'COPY "{table}" TO STDOUT') as copy:
            return b"".join(bytes(part) for part in copy)
    return cursor.execute(f'SELECT * FROM "{table}"').fetchall()


def _paste(cursor: Any, table: str, rows: Any) -> None:
    if connection.vendor == "postgresql":
        with cursor.copy(f'COPY "{table}" FROM STDIN') as copy:
            copy.write(rows)
        return
    places = ", ".join(["%s"] * len(rows[0]))
    cursor.executemany(f'INSERT INTO "{table}" VALUES ({places})', rows)
