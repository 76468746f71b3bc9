"""Who looks at the console, and what they see there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.core.cache import cache
from django.test import Client

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _fresh_dashboard() -> None:
    cache.clear()


@pytest.fixture
def client_with(db: None) -> Callable[..., Client]:
    """`client_with("view_session", "fail_session")`: a member of the staff with these permissions alone."""
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Permission

    def make(*codenames: str) -> Client:
        user = get_user_model().objects.create_user(
            f"staff {get_user_model().objects.count()}", is_staff=True
        )
        found = Permission.objects.filter(content_type__app_label="helix_sessions", codename__in=codenames)
        assert found.count() == len(codenames)
        user.user_permissions.set(found)
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def viewer(client_with: Callable[..., Client]) -> Client:
    """Someone who may see sessions and nothing more."""
    return client_with("view_session")


@pytest.fixture
def stranger(client_with: Callable[..., Client]) -> Client:
    """A member of the staff who has nothing to do with sessions."""
    return client_with()
