"""A session to work on."""

import pytest

from helix_sessions.store import SessionStore


@pytest.fixture
def session(store: SessionStore) -> str:
    """The id of a new session."""
    return store.create_session("s", agent_type="writer").session_id
