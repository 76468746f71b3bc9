"""The ways a write is flushed: each must pass the same tests."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import pytest
from django.conf import settings as django_settings
from django.db import connection

from helix_sessions.store.engine.dialect import table_by_table
from helix_sessions.store.engine.postgres import PostgresDialect
from tests import citus

ON_POSTGRESQL = "postgresql" in django_settings.DATABASES["default"]["ENGINE"]
WAYS: list[object] = ["remembered row", "table by table"]
if ON_POSTGRESQL:  # `make test` has the way of SQLite there
    WAYS = ["remembered row", "under the lock"]
    LONGER = ("read without a lock", "table by table", "all statements at once")
    WAYS += [pytest.param(way, marks=pytest.mark.slow) for way in LONGER]


def begin(flush_way: str) -> None:
    """Call before the write: a new connection remembers no row it wrote."""
    if flush_way in ("under the lock", "read without a lock"):
        connection.close()


@contextmanager
def flushed(flush_way: str) -> Iterator[None]:
    """Write in this way inside the block. Under the lock is what is left to a write that meets another."""
    with ExitStack() as stack:
        if flush_way == "all statements at once":
            stack.enter_context(citus.spoken())
        else:
            stack.enter_context(table_by_table(flush_way == "table by table"))
        if flush_way == "under the lock":
            stack.enter_context(patch.object(PostgresDialect, "read_unlocked", lambda *_: None))
        yield
