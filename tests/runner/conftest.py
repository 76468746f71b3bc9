import pytest

from helix_sessions.runtime.loop import lease_keeper
from helix_sessions.store import SessionStore


@pytest.fixture
def session(store: SessionStore) -> str:
    return store.create_session("s", agent_type="writer").session_id


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to stop are noticed sooner, so that tests need not wait."""
    monkeypatch.setattr(lease_keeper, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr("helix_sessions.runtime.loop.io.GRACE_SECONDS", 0.2)
