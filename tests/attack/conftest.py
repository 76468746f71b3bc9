"""Who attacks, and what is attacked."""

from collections.abc import Iterator

import pytest
from django.core.cache import cache

from tests.api.conftest import (  # noqa: F401
    api,
    blob_storage,
    client_of,
    grant,
    participant,
    session,
    stranger,
    user,
)


@pytest.fixture(autouse=True)
def nobody_failed_yet() -> Iterator[None]:
    """Failed logins are counted in the cache."""
    cache.clear()
    yield
    cache.clear()
