"""A cursor of psycopg that prepares what it executes.

The store executes a few dozen statements thousands of times on one connection. Prepared, the server plans
each of them once; bound on the server, their documents are not quoted here. Statements keep `%s` for a
placeholder, so that one text serves both databases, and are numbered once, as PostgreSQL wants them.
"""

from functools import lru_cache
from typing import Any

import psycopg


class PreparedCursor(psycopg.RawCursor[tuple[Any, ...]]):
    """Binds on the server and prepares what it executes; Django's own cursors do neither."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        connection = self.connection
        threshold = connection.prepare_threshold
        connection.prepare_threshold = 0  # Django's None means never, even where it is asked for
        try:
            return super().execute(_numbered(query), params, prepare=True)
        finally:
            connection.prepare_threshold = threshold


@lru_cache(maxsize=512)
def _numbered(sql: str) -> bytes:
    """The statement with its placeholders as PostgreSQL numbers them."""
    first, *rest = sql.split("%s")
    return (first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))).encode()
