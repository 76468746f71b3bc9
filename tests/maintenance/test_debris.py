"""Debris: orphaned staging goes, stuck runs are reported, and woken where asked."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import InvalidInput
from helix_sessions.models import Session, StagedChange
from helix_sessions.store import SessionStore
from helix_sessions.store.runs import rescue
from helix_sessions.types import DebrisSummary
from tests.rows import each

HOUR = timedelta(hours=1)


def stage(store: SessionStore, session_id: str, *, running: bool = False) -> None:
    store.create_session(session_id, agent_type="writer")
    store.stage_changes(session_id, "step", "call", [{"op": "set", "path": ["x"], "value": 1}])
    if running:
        store.create_run(session_id)
    long_ago = timezone.now() - timedelta(days=2)
    StagedChange.objects.filter(session_id=session_id).update(staged_at=long_ago)
    Session.objects.filter(session_id=session_id).update(
        updated_at=long_ago, created_at=long_ago, last_agent_activity_at=long_ago
    )


@pytest.mark.django_db
class TestDebris:
    def test_removes_staging_reports_stuck_runs_and_leaves_the_rest(self, store: SessionStore) -> None:
        stage(store, "crashed")
        stage(store, "stuck", running=True)
        store.create_session("busy", agent_type="writer")
        store.create_run("busy")
        store.stage_changes("busy", "step", "call", [])
        expected = DebrisSummary(staged_removed=1, stuck=("stuck",))
        assert store.cleanup_debris(dry_run=True) == expected
        assert store.has_staged_changes("crashed")
        assert store.cleanup_debris() == expected
        assert not store.has_staged_changes("crashed")
        assert store.has_staged_changes("stuck")
        assert store.has_staged_changes("busy")
        assert store.get_current_run("stuck") is not None

    def test_wakes_what_is_stuck(self, store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
        for key in ("a", "b", "c"):
            stage(store, key, running=True)
        real = rescue.wake

        def wake(store: SessionStore, session_id: str) -> Any:
            if session_id == "b":
                raise ConnectionError
            return real(store, session_id)

        monkeypatch.setattr(rescue, "wake", wake)
        assert store.cleanup_debris(wake=True, dry_run=True).woken == 0
        summary = store.cleanup_debris(wake=True, staged_for=timedelta(days=9))
        assert (summary.stuck, summary.woken, summary.errors) == (("a", "b", "c"), 2, 1)
        assert store.get_current_run("a") is None
        assert store.get_current_run("b") is not None

    @each("bad", [{"staged_for": 3}, {"stuck_for": timedelta(-1)}])
    def test_bad_input(self, store: SessionStore, bad: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            store.cleanup_debris(**bad)
