"""Retention: what the policy says goes, what others need stays."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from helix_sessions.exceptions import InvalidInput
from helix_sessions.models import AuditEntry, Session
from helix_sessions.store import SessionStore
from helix_sessions.types import PruneSummary, RetentionPolicy
from tests.invariants import assert_no_orphans
from tests.parallel import run_threads
from tests.rows import each

MONTH = RetentionPolicy(terminal_for=timedelta(days=30))


def old(
    store: SessionStore, session_id: str, *, days: float = 60, status: str = "completed", **fields: Any
) -> None:
    """A session that has had its status for so many days."""
    store.create_session(session_id, **{"agent_type": "writer", **fields})
    store.append_messages(session_id, [{"role": "user", "content": "x"}])
    store.update_status(session_id, status)
    age(session_id, days)


def age(session_id: str, days: float) -> None:
    then = timezone.now() - timedelta(days=days)
    Session.objects.filter(session_id=session_id).update(
        status_since=then,
        created_at=then - timedelta(days=1),
        updated_at=then,
        last_agent_activity_at=then,
    )


def left() -> set[str]:
    return set(Session.objects.values_list("session_id", flat=True))


@pytest.mark.django_db
class TestPrune:
    def test_by_age_and_status(self, store: SessionStore) -> None:
        for status in ("active", "paused", "interrupted", "completed", "failed"):
            old(store, status, status=status)
        old(store, "young", days=29)
        summary = store.prune_sessions(MONTH)
        assert (summary.sessions, summary.messages, summary.events, summary.errors) == (2, 2, 6, 0)
        assert left() == {"active", "paused", "interrupted", "young"}
        assert_no_orphans()

    def test_a_status_is_as_old_as_its_last_change(self, store: SessionStore) -> None:
        old(store, "s")
        store.update_status("s", "failed")
        assert store.prune_sessions(MONTH).sessions == 0

    def test_narrowed_by_status_agent_type_and_tags(self, store: SessionStore) -> None:
        old(store, "a", status="failed", agent_type="crawler")
        old(store, "b", status="completed", agent_type="crawler")
        old(store, "c", status="failed", agent_type="writer")
        old(store, "d", status="failed", agent_type="crawler", tags=["x", "legal-hold"])
        policy = RetentionPolicy(
            terminal_for=timedelta(0),
            statuses=("failed",),
            agent_types=("crawler",),
            keep_tags=("legal-hold", "other"),
        )
        assert store.prune_sessions(policy).sessions == 1
        assert left() == {"b", "c", "d"}

    def test_sources_of_branches_stay(self, store: SessionStore) -> None:
        old(store, "a")
        store.clone_session("a", "b")
        store.update_status("b", "completed")
        store.clone_session("b", "c")
        age("b", 50)
        summary = store.prune_sessions(MONTH)
        assert (summary.sessions, summary.kept_for_forks) == (0, 2)
        store.update_status("c", "failed")
        age("c", 40)
        assert store.prune_sessions(MONTH, dry_run=True).sessions == 3
        assert store.prune_sessions(MONTH).sessions == 3
        assert left() == set()

    def test_parents_of_what_is_kept_stay(self, store: SessionStore) -> None:
        old(store, "root", days=90)
        old(store, "done", days=80, parent_session_id="root")
        old(store, "live", days=70, parent_session_id="root", status="active")
        old(store, "grandchild", days=65, parent_session_id="done")
        old(store, "keeper", days=90)
        old(store, "referred", days=95, status="active")
        store.add_sub_session_refs("keeper", [{"sub_session_id": "referred", "agent_type": "x"}])
        dry = store.prune_sessions(MONTH, dry_run=True)
        summary = store.prune_sessions(MONTH)
        assert (summary.sessions, summary.kept_for_children) == (2, 2)
        assert (dry.sessions, dry.kept_for_children) == (2, 2)
        assert left() == {"root", "live", "keeper", "referred"}

    def test_dry_run_deletes_nothing_and_tells_the_size(self, store: SessionStore, engine: str) -> None:
        for number in range(5):
            old(store, f"s{number}")
        summary = store.prune_sessions(MONTH, dry_run=True)
        assert (summary.sessions, summary.messages, summary.events) == (5, 5, 15)
        assert (summary.estimated_bytes is None) == (engine == "sqlite")
        assert len(left()) == 5

    def test_pages_limit_progress_and_stop(self, store: SessionStore) -> None:
        for number in range(9):
            old(store, f"s{number}")
        assert store.prune_sessions(MONTH, page_size=2, limit=5).sessions == 5
        told: list[PruneSummary] = []
        store.prune_sessions(MONTH, on_progress=told.append, should_stop=lambda: len(told) == 1)
        assert len(left()) == 3
        assert store.prune_sessions(MONTH, page_size=1).sessions == 3

    def test_snapshots_go_with_the_session_and_a_failure_keeps_it(
        self, store: SessionStore, memory: Any
    ) -> None:
        for key in "abc":
            old(store, key, workspace_ref={"provider_id": "memory"})
        memory.snapshots["a"] = ["one"]
        memory.broken.add("b")
        summary = store.prune_sessions(MONTH)
        assert (summary.sessions, summary.errors) == (2, 1)
        assert memory.snapshots["a"] == []
        assert left() == {"b"}

    @each(
        "policy",
        [
            RetentionPolicy(terminal_for=timedelta(days=-1)),
            RetentionPolicy(terminal_for=timedelta(1), statuses=("active",)),
            RetentionPolicy(terminal_for=timedelta(1), statuses=()),
            {"terminal_for": 3},
        ],
    )
    def test_bad_policies(self, store: SessionStore, policy: Any) -> None:
        with pytest.raises(InvalidInput):
            store.prune_sessions(policy)

    def test_bad_archive_limits(self, store: SessionStore, archive_storage: Path) -> None:
        with pytest.raises(InvalidInput):
            store.archive_long_logs(longer_than=5, keep=6)


@pytest.mark.django_db(transaction=True)
def test_a_branch_never_loses_its_source_to_pruning(store: SessionStore) -> None:
    for number in range(20):
        old(store, f"s{number:02}")

    def work(index: int) -> Any:
        if index == 0:
            return store.prune_sessions(MONTH)
        made = []
        for number in range(20):
            try:
                made.append(store.clone_session(f"s{number:02}", f"b{number:02}"))
            except LookupError:
                continue
        return made

    pruned, made = run_threads(2, work)
    assert isinstance(pruned, PruneSummary), pruned
    assert isinstance(made, list), made
    for branch in made:
        assert branch.forked_from is not None
        assert store.session_exists(branch.forked_from[0])
    assert pruned.sessions + len(made) == 20


def told(count: int, *, days: float) -> None:
    """So many entries of the audit trail, so old."""
    at = timezone.now() - timedelta(days=days)
    AuditEntry.objects.bulk_create(
        AuditEntry(entry_id=uuid4(), at=at, action="POST x", status=201) for _ in range(count)
    )


@pytest.mark.django_db
class TestAuditTrail:
    def test_by_age(self, store: SessionStore) -> None:
        told(3, days=31)
        told(2, days=29)
        assert store.prune_audit_trail(timedelta(days=30), dry_run=True).entries == 3
        assert AuditEntry.objects.count() == 5
        assert store.prune_audit_trail(timedelta(days=30)).entries == 3
        assert AuditEntry.objects.count() == 2
        assert store.prune_audit_trail(timedelta(days=30)).entries == 0

    def test_in_batches_that_can_be_stopped(self, store: SessionStore) -> None:
        told(7, days=31)
        seen: list[int] = []
        summary = store.prune_audit_trail(
            timedelta(days=30),
            page_size=2,
            on_progress=lambda so_far: seen.append(so_far.entries),
            should_stop=lambda: len(seen) == 2,
        )
        assert (summary.entries, seen) == (4, [2, 4])
        assert store.prune_audit_trail(timedelta(days=30), page_size=2).entries == 3

    def test_the_oldest_first_up_to_a_limit(self, store: SessionStore) -> None:
        told(2, days=40)
        told(2, days=50)
        assert store.prune_audit_trail(timedelta(days=30), limit=3, dry_run=True).entries == 3
        assert store.prune_audit_trail(timedelta(days=30), limit=3, page_size=2).entries == 3
        [left_over] = AuditEntry.objects.all()
        assert left_over.at > timezone.now() - timedelta(days=41)

    def test_nothing_else_removes_them(self, store: SessionStore) -> None:
        told(1, days=5000)
        old(store, "s")
        store.prune_sessions(MONTH)
        assert AuditEntry.objects.count() == 1

    @each(
        ("period", "options"),
        [(30, {}), (timedelta(-1), {}), (timedelta(1), {"page_size": 0}), (timedelta(1), {"limit": -1})],
    )
    def test_bad_arguments(self, store: SessionStore, period: Any, options: Any) -> None:
        with pytest.raises(InvalidInput):
            store.prune_audit_trail(period, **options)
