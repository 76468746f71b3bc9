"""Expired sessions: found, their snapshots deleted, then marked; one failure stops no other."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helix_sessions.exceptions import InvalidInput
from helix_sessions.messages import tool_ledger
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.maintenance import sql
from helix_sessions.types import CleanupSummary
from tests.contract.suspended import asked, suspended
from tests.parallel import run_processes, run_threads
from tests.rows import each

PAST = timezone.now() - timedelta(hours=1)
NEVER = timezone.now() + timedelta(days=365)
REF = {"provider_id": "memory"}


def make(store: SessionStore, session_id: str, **fields: Any) -> str:
    fields = {"agent_type": "writer", "expires_at": PAST, **fields}
    return store.create_session(session_id, **fields).session_id


@pytest.mark.django_db
class TestCleanup:
    def test_marks_only_what_is_past_and_unfinished(self, store: SessionStore) -> None:
        for status in ("active", "paused", "interrupted", "completed", "failed"):
            make(store, status)
            store.update_status(status, status)
        make(store, "later", expires_at=timezone.now() + timedelta(hours=1))
        make(store, "never", expires_at=None)
        summary = store.expired_session_cleanup()
        assert summary == CleanupSummary(detected=5, marked=3, already_terminal=2)
        for key in ("active", "paused", "interrupted"):
            state = store.load_state(key)
            assert (state.status, state.failure_reason) == ("failed", "session_expired")
            assert state.version == 3
            assert store.get_events(key)[-1].data["failure_reason"] == "session_expired"
        assert store.load_state("failed").failure_reason is None
        assert store.load_state("completed").status == "completed"
        assert store.load_state("later").status == store.load_state("never").status == "active"
        assert store.expired_session_cleanup() == CleanupSummary(detected=5, already_terminal=5)

    def test_settles_calls_past_their_deadline(self, store: SessionStore) -> None:
        """As an error result, which a late answer replaces until the session has gone on."""
        for key in ("answered in time", "answered late", "answered too late"):
            suspended(store, key, asked("a", deadline=PAST), asked("b", deadline=NEVER))
        store.submit_tool_result("answered in time", "a", result=1)
        store.expired_session_cleanup(dry_run=True)
        assert not store.get_events("answered late", types=["tool_result_expired"])
        store.expired_session_cleanup()
        store.expired_session_cleanup()
        assert not store.get_events("answered in time", types=["tool_result_expired"])
        for key in ("answered late", "answered too late"):
            assert len(store.get_events(key, types=["tool_result_expired"])) == 1
            calls = store.load_state(key).pending_client_tool_calls or {}
            assert "error" in calls["a"]["response"]
            assert calls["b"]["response"] is None
        assert store.submit_tool_result("answered late", "a", result=2).outcome == "accepted"
        contents = {}
        for key in ("answered in time", "answered late", "answered too late"):
            store.submit_tool_result(key, "b", result="b")
            contents[key] = [message["content"] for message in store.resume(key).tool_messages]
        assert contents == {
            "answered in time": [1, "b"],
            "answered late": [2, "b"],
            "answered too late": [tool_ledger.EXPIRED, "b"],
        }
        for _ in range(2):
            assert store.submit_tool_result("answered too late", "a", result=3).outcome == "late"
        [event] = store.get_events("answered too late", types=["tool_result_late"])
        assert event.data == {"tool_call_id": "a", "response": {"result": 3}}

    def test_deletes_snapshots_before_it_marks(self, store: SessionStore, memory: Any) -> None:
        make(store, "a", workspace_ref=REF)
        memory.snapshots["a"] = ["one", "two"]
        seen: list[str] = []
        memory.before_delete = lambda workspace: seen.append(store.load_state(workspace.session_id).status)
        assert store.expired_session_cleanup() == CleanupSummary(detected=1, marked=1, snapshots_deleted=2)
        assert seen == ["active", "active"]
        assert memory.snapshots["a"] == []

    def test_a_failure_is_counted_logged_without_content_and_stops_nobody(
        self, store: SessionStore, memory: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        for key in ("a", "b", "c"):
            make(store, key, workspace_ref=REF)
        make(store, "d", workspace_ref={"provider_id": "unknown"})
        memory.broken.add("b")
        with caplog.at_level(logging.INFO, "helix_sessions"):
            summary = store.expired_session_cleanup()
        assert summary == CleanupSummary(detected=4, marked=2, errors=2)
        assert [store.load_state(key).status for key in "abcd"] == ["failed", "active", "failed", "active"]
        assert "'b'" in caplog.text
        assert "'d'" in caplog.text
        assert "secret words" not in caplog.text
        memory.broken.clear()
        assert store.expired_session_cleanup().marked == 1, "the next one tries again"

    def test_a_reference_that_names_no_provider_is_nobodys(self, store: SessionStore) -> None:
        make(store, "a", workspace_ref="just a text")
        make(store, "b", workspace_ref={"path": "/somewhere"})
        assert store.expired_session_cleanup().marked == 2

    def test_a_session_that_got_more_time_is_left(self, store: SessionStore, memory: Any) -> None:
        make(store, "a", workspace_ref=REF)
        memory.snapshots["a"] = ["one"]

        def extend(workspace: Any) -> None:
            later = timezone.now() + timedelta(days=1)
            state = store.load_state("a")
            store.save_state("a", type(state)(**{**vars_of(state), "expires_at": later}))

        memory.before_delete = extend
        assert store.expired_session_cleanup() == CleanupSummary(snapshots_deleted=1)
        assert store.load_state("a").status == "active"

    def test_a_compare_and_set_that_is_lost_again_and_again_is_an_error(
        self, store: SessionStore, memory: Any
    ) -> None:
        make(store, "a", workspace_ref=REF)
        make(store, "b")
        memory.snapshots["a"] = ["one"]

        def go_on(workspace: Any) -> None:
            store.increment_step_count("a")
            memory.snapshots["a"].append("another")

        memory.before_delete = go_on
        summary = store.expired_session_cleanup()
        assert (summary.detected, summary.marked, summary.errors) == (2, 1, 1)
        assert [store.load_state(key).status for key in "ab"] == ["active", "failed"]

    def test_dry_run_changes_nothing(self, store: SessionStore, memory: Any) -> None:
        make(store, "a", workspace_ref=REF)
        memory.snapshots["a"] = ["one"]
        before = store.load_state("a")
        summary = store.expired_session_cleanup(dry_run=True)
        assert summary == CleanupSummary(detected=1, marked=1, snapshots_deleted=1)
        assert store.load_state("a") == before
        assert memory.snapshots["a"] == ["one"]

    def test_pages_limits_and_agent_types(self, store: SessionStore) -> None:
        for number in range(23):
            make(store, f"s{number:02}", agent_type="even" if number % 2 == 0 else "odd")
        assert store.expired_session_cleanup(page_size=3, agent_type="odd").marked == 11
        assert store.expired_session_cleanup(page_size=5, limit=7).marked == 7
        assert store.expired_session_cleanup(page_size=1).marked == 5
        assert not Session.objects.expired().exists()

    def test_can_be_stopped(self, store: SessionStore) -> None:
        for number in range(5):
            make(store, f"s{number}")
        told: list[CleanupSummary] = []
        summary = store.expired_session_cleanup(on_progress=told.append, should_stop=lambda: len(told) == 2)
        assert summary.marked == 2
        assert [item.marked for item in told] == [1, 2]

    @each("bad", [{"page_size": 0}, {"limit": -1}, {"rest": -1}, {"agent_type": ""}, {"now": "today"}])
    def test_bad_input(self, store: SessionStore, bad: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            store.expired_session_cleanup(**bad)

    def test_queries_do_not_grow_with_the_sessions_that_have_not_expired(self, store: SessionStore) -> None:
        make(store, "a")
        with CaptureQueriesContext(
            connection,
        ) as few:
            store.expired_session_cleanup()
        for number in range(50):
            make(store, f"later-{number}", expires_at=timezone.now() + timedelta(days=1))
        make(store, "b")
        with CaptureQueriesContext(connection) as many:
            store.expired_session_cleanup()
        assert len(many) == len(few)


def vars_of(state: Any) -> dict[str, Any]:
    return {name: getattr(state, name) for name in state.__dataclass_fields__}


@pytest.mark.django_db(transaction=True)
def test_two_at_once_share_the_work_and_do_no_harm(store: SessionStore) -> None:
    for number in range(60):
        make(store, f"s{number:02}")
    results = run_threads(3, lambda index: SessionStore().expired_session_cleanup(page_size=20))
    assert added_up(results) == (60, 0)
    for number in range(60):
        state = store.load_state(f"s{number:02}")
        assert (state.status, state.version) == ("failed", 2)


def added_up(results: Sequence[CleanupSummary | Exception]) -> tuple[int, int]:
    """How many were marked, and how many were errors."""
    summaries = [result for result in results if isinstance(result, CleanupSummary)]
    assert len(summaries) == len(results), results
    return sum(item.marked for item in summaries), sum(item.errors for item in summaries)


def clean_up(index: int) -> CleanupSummary:
    return SessionStore().expired_session_cleanup(page_size=50)


@pytest.mark.django_db(transaction=True)
def test_two_processes_share_the_work(store: SessionStore) -> None:
    for number in range(100):
        make(store, f"s{number:03}")
    results = run_processes(2, clean_up)
    assert added_up(results) == (100, 0)


@pytest.mark.one_machine("it reads the plan of one server")
@pytest.mark.django_db
def test_the_sessions_are_found_by_their_index(store: SessionStore, engine: str) -> None:
    for number in range(300):
        make(store, f"s{number}", expires_at=None if number % 50 else PAST)
    explain = "EXPLAIN" if engine == "postgresql" else "EXPLAIN QUERY PLAN"
    with connection.cursor() as cursor:
        if engine == "postgresql":
            cursor.execute("ANALYZE helix_sessions_session")
            cursor.execute("SET LOCAL enable_seqscan = off")
        query = sql.overdue(dialect_of(connection), False)
        cursor.execute(f"{explain} {query}", ["2030-01-01", "2020-01-01", "", 200])
        plan = str(cursor.fetchall())
    assert "helix_session_overdue_idx" in plan
    assert "TEMP B-TREE" not in plan
    assert "Sort" not in plan
