"""Who attacks, and what is attacked."""

from collections.abc import Iterator

import pytest
from django.core.cache import cache

from tests.api.conftest import api, client_of, grant, session, stranger, user  # noqa: F401


@pytest.fixture(autouse=True)
def nobody_failed_yet() -> Iterator[None]:
    """Failed logins are counted in the cache."""
    cache.clear()
    yield
    cache.clear()
