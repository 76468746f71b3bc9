"""A backup of the tables that is restored under running processes, through a connection of its own."""

import sqlite3
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection

from helix_sessions.models import Session
from tests.invariants import tables


class Backup:
    """The tables as they are when this is made. `restore` puts them back, in one transaction."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "backup"
        self._rows: dict[str, bytes] = {}
        if connection.vendor == "sqlite":
            with _sqlite(connection.settings_dict["NAME"]) as live, _sqlite(self._file) as kept:
                live.backup(kept)
            return
        with _postgresql() as server:
            for name in _tables():
                with server.cursor().copy(f"COPY {name} TO STDOUT") as rows:
                    self._rows[name] = b"".join(map(bytes, rows))

    def restore(self) -> None:
        """As SQLite's `.restore` and `pg_restore --data-only` do."""
        if connection.vendor == "sqlite":
            with _sqlite(self._file) as kept, _sqlite(connection.settings_dict["NAME"]) as live:
                kept.backup(live)
            return
        with _postgresql() as server:
            server.execute(f"TRUNCATE {', '.join(self._rows)}")
            for name, rows in self._rows.items():
                with server.cursor().copy(f"COPY {name} FROM STDIN") as into, BytesIO(rows) as file:
                    while some := file.read(2**20):
                        into.write(some)


def _tables() -> list[str]:
    """The sessions first, to which the other rows belong."""
    models = sorted(tables(), key=lambda model: model is not Session)
    return [f'"{model._meta.db_table}"' for model in models]


def _sqlite(name: Any) -> "closing[sqlite3.Connection]":
    return closing(sqlite3.connect(name, timeout=30))


def _postgresql() -> "psycopg.Connection[Any]":
    known = connection.get_connection_params()
    place = {name: known[name] for name in ("host", "port", "user", "password", "dbname") if name in known}
    return psycopg.connect(**place)
