"""The ways a write is flushed: each must pass the same tests."""

import pytest
from django.conf import settings as django_settings
from django.db import connection

ON_POSTGRESQL = "postgresql" in django_settings.DATABASES["default"]["ENGINE"]
WAYS: list[object] = ["remembered row", "table by table"]
if ON_POSTGRESQL:  # `make test` has the way of SQLite there
    WAYS = ["remembered row", "one statement"]
    WAYS += [
        pytest.param(way, marks=pytest.mark.slow) for way in ("table by table", "all statements at once")
    ]


def begin(flush_way: str) -> None:
    """Call before the write: a new connection remembers no row it wrote."""
    if flush_way == "one statement":
        connection.close()
