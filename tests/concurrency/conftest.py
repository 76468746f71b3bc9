from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from tests.concurrency.flushes import WAYS, flushed


@pytest.fixture(params=WAYS)
def flush_way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test with each way this engine has."""
    way: str = request.param
    with flushed(way):
        yield way


@pytest.fixture
def impatient(settings: Any) -> Iterator[None]:
    """Wait for locks for a tenth of a second only."""
    settings.HELIX_SESSIONS = {"LOCK_TIMEOUT": 0.1}
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 100")
    yield
    connection.close()
