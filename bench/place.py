"""Where the databases of one run are, and the ways to them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psycopg

_TABLES = """
SELECT relname, pg_total_relation_size(oid) FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""

Route = Literal["direct", "counted", "delayed"]
"""Straight to the server, through the proxy that counts, or through the one that delays."""


@dataclass(frozen=True)
class Place:
    """A server, a file, and the ports that lead to the server."""

    server: str
    sqlite: Path
    ports: dict[Route, int] = field(default_factory=dict)

    def url(self, database: str, through: Route = "direct") -> str:
        """The address of one of the server's databases."""
        account, _, _ = self.server.rpartition("@")
        return f"{account}@127.0.0.1:{self.ports[through]}/{database}"

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the superuser, outside a transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def table_bytes(self, database: str) -> dict[str, int]:
        """What each table takes, with TOAST and indexes."""
        return {str(name): int(size) for name, size in self.execute(_TABLES, database)}

    def settle(self, *databases: str) -> None:
        """After bulk filling: statistics and visibility as a server in use has them."""
        for database in databases:
            self.execute("VACUUM ANALYZE", database)
        self.execute("CHECKPOINT")
