import pytest

from helix_sessions.runtime import keeper
from helix_sessions.store import SessionStore


@pytest.fixture
def session(store: SessionStore) -> str:
    return store.create_session("s", agent_type="writer").session_id


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to stop are noticed sooner, so that tests need not wait."""
    monkeypatch.setattr(keeper, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr("helix_sessions.runtime.runner_io.GRACE_SECONDS", 0.2)
