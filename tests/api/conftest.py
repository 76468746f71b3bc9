"""A user, somebody else, and their ways to the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from rest_framework.test import APIClient

from helix_sessions.store import SessionStore
from tests.api.filled import fill


@pytest.fixture(autouse=True)
def blob_storage(settings: Any) -> None:
    """Attachments are kept in memory."""
    memory = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
    settings.STORAGES = {**settings.STORAGES, "blobs": memory}
    settings.HELIX_SESSIONS = {**settings.HELIX_SESSIONS, "BLOB_STORAGE": "blobs"}


@pytest.fixture
def user(db: None) -> Any:
    """A driver, who may do everything with the sessions they own."""
    return driver("ada")


@pytest.fixture
def stranger(db: None) -> Any:
    """Another driver."""
    return driver("eve")


@pytest.fixture
def participant(db: None) -> Any:
    """A person who talks to agents."""
    return get_user_model().objects.create_user("pat")


def driver(name: str) -> Any:
    """A user who may drive their own sessions."""
    user = get_user_model().objects.create_user(name)
    user.user_permissions.add(Permission.objects.get(codename="drive_session"))
    return user


@pytest.fixture
def client_of() -> Callable[[Any], APIClient]:
    """A client that is logged in without a statement of its own."""

    def made(user: Any) -> APIClient:
        client = APIClient()
        client.default_format = "json"
        client.force_authenticate(user)
        return client

    return made


@pytest.fixture
def api(user: Any, client_of: Callable[[Any], APIClient]) -> APIClient:
    """The user's client."""
    return client_of(user)


@pytest.fixture
def session(user: Any, store: SessionStore) -> str:
    """A session of the user, at version 1."""
    store.create_session("s", agent_type="test", owner=user)
    return "s"


@pytest.fixture
def filled(session: str, store: SessionStore) -> str:
    """It with every part there is, once for all rows of a test."""
    fill(store, session)
    return session


@pytest.fixture
def grant() -> Callable[..., Any]:
    """Give a user some of the app's permissions."""

    def granted(user: Any, *codenames: str) -> Any:
        user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
        return get_user_model().objects.get(pk=user.pk)

    return granted
