"""The erasure of a person: sessions, trees, snapshots, archives; reported, and repeatable."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from helix_sessions.exceptions import InvalidInput
from helix_sessions.models import IdempotentAnswer, Session
from helix_sessions.store import SessionStore
from helix_sessions.types import Answer, ErasureSummary
from tests.invariants import assert_no_orphans, dump
from tests.maintenance.test_archives import talk


def left() -> set[str]:
    return set(Session.objects.values_list("session_id", flat=True))


@pytest.fixture
def people(store: SessionStore) -> tuple[Any, Any]:
    """Alice with a tree and a session known by user_id, and Bob."""
    alice, bob = (get_user_model().objects.create_user(name) for name in ("alice", "bob"))
    store.create_session("a1", agent_type="x", owner=alice)
    store.append_messages("a1", [{"role": "user", "content": "private"}])
    store.create_session("a1-child", agent_type="x", parent_session_id="a1")
    store.create_session("a2", agent_type="x", user_id="customer-17")
    store.create_session("b1", agent_type="x", owner=bob)
    return alice, bob


@pytest.mark.django_db
class TestErase:
    def test_by_owner_and_user_id(self, store: SessionStore, people: tuple[Any, Any]) -> None:
        summary = store.erase_user(owner=people[0], user_id="customer-17")
        assert summary == ErasureSummary(sessions=3, messages=1, events=4)
        assert left() == {"b1"}
        assert_no_orphans()
        assert store.erase_user(owner=people[0].pk, user_id="customer-17") == ErasureSummary()

    def test_one_of_them_alone(self, store: SessionStore, people: tuple[Any, Any]) -> None:
        assert store.erase_user(user_id="customer-17").sessions == 1
        assert left() == {"a1", "a1-child", "b1"}
        assert store.erase_user(owner=people[0]).sessions == 2

    def test_what_else_refers_to_the_account(self, store: SessionStore, people: tuple[Any, Any]) -> None:
        for person in people:
            store.answer_once(person, "key", "digest", lambda: Answer(status=200, body="private"))
        assert store.erase_user(owner=people[0], dry_run=True).answers_deleted == 1
        assert store.erase_user(owner=people[0]).answers_deleted == 1
        assert list(IdempotentAnswer.objects.values_list("user_id", flat=True)) == [people[1].pk]

    def test_nobody_is_named(self, store: SessionStore) -> None:
        with pytest.raises(InvalidInput):
            store.erase_user()

    def test_dry_run(self, store: SessionStore, people: tuple[Any, Any]) -> None:
        rows = dump()
        assert store.erase_user(owner=people[0], dry_run=True).sessions == 2
        assert dump() == rows

    def test_branches_of_others_are_reported_or_removed(
        self, store: SessionStore, people: tuple[Any, Any]
    ) -> None:
        store.clone_session("a1", "own-branch")
        store.clone_session("a1", "taken")
        store.clone_session("taken", "taken-again")
        Session.objects.filter(session_id__startswith="taken").update(owner=people[1])
        planned = store.erase_user(owner=people[0], dry_run=True)
        assert (planned.sessions, planned.forks_left) == (3, ("taken",))
        assert store.erase_user(owner=people[0]).forks_left == ("taken",)
        assert left() == {"a2", "b1", "taken", "taken-again"}

    def test_with_their_branches(self, store: SessionStore, people: tuple[Any, Any]) -> None:
        store.clone_session("a1", "taken")
        store.clone_session("taken", "taken-again")
        Session.objects.filter(session_id__startswith="taken").update(owner=people[1])
        summary = store.erase_user(owner=people[0], include_forks=True)
        assert (summary.sessions, summary.forks_left) == (4, ())
        assert left() == {"a2", "b1"}

    def test_a_provider_that_fails_keeps_the_session_for_the_next_time(
        self, store: SessionStore, people: tuple[Any, Any], memory: Any
    ) -> None:
        for key in ("p", "q"):
            store.create_session(
                key, agent_type="x", owner=people[0], workspace_ref={"provider_id": "memory"}
            )
            memory.snapshots[key] = ["one", "two"]
        memory.broken.add("p")
        summary = store.erase_user(owner=people[0])
        assert (summary.errors, summary.snapshots_deleted) == (1, 2)
        assert left() == {"a2", "b1", "p"}
        memory.broken.clear()
        assert store.erase_user(owner=people[0]) == ErasureSummary(sessions=1, events=1, snapshots_deleted=2)

    def test_a_circle_of_references_ends(self, store: SessionStore, people: tuple[Any, Any]) -> None:
        store.add_sub_session_refs("a1-child", [{"sub_session_id": "a1", "agent_type": "x"}])
        assert store.erase_user(owner=people[0]).sessions == 2


@pytest.mark.django_db(transaction=True)
def test_archives_are_erased(store: SessionStore, archive_storage: Path) -> None:
    talk(store, "s", 8)
    Session.objects.filter(session_id="s").update(user_id="u")
    store.archive_events("s", keep=1)
    assert list(archive_storage.rglob("*.gz"))
    assert store.erase_user(user_id="u").archives_deleted == 1
    assert not list(archive_storage.rglob("*.gz"))
    assert not any(dump().values())
