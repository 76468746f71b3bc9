"""The statements a block sends, as they are written."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def captured_statements() -> Iterator[list[str]]:
    """Collect the SQL of every statement. Transaction control is not among them."""
    found: list[str] = []

    def collect(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        found.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(collect):
        yield found
