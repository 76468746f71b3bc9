"""A store of one owner exports, imports and erases what is that owner's, and nothing else."""

import io
import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from helix_sessions.exceptions import InvalidExport, InvalidInput, SessionNotFound
from helix_sessions.memory import MemoryStore
from helix_sessions.models import Memory, Schedule, Session, SpendEntry, SpendLimit, SpendTotal
from helix_sessions.store import SessionStore
from helix_sessions.types import ErasureSummary
from tests.invariants import assert_healthy, dump

SECRET = "what Bob said"


def home(owner: Any) -> tuple[str, str]:
    return ("owner", str(owner.pk))


def have(owner: Any, key: str, said: str, **options: Any) -> None:
    store = SessionStore()
    store.create_session(key, agent_type="x", owner=owner, user_id="u", **options)
    store.append_messages(key, [{"role": "user", "content": said}])


@pytest.fixture
def people(store: SessionStore) -> tuple[Any, Any]:
    """Ada and Bob, each with a tree that has a session of the other, a memory, a schedule and spending."""
    ada, bob = (get_user_model().objects.create_user(name) for name in ("ada", "bob"))
    have(ada, "a", "mine")
    have(bob, "b", SECRET)
    have(bob, "a/of-b", SECRET, parent_session_id="a")
    have(ada, "b/of-a", "mine", parent_session_id="b")
    have(ada, "b/of-a/deep", "mine", parent_session_id="b/of-a")
    for parent, child in (("a", "a/of-b"), ("b", "b/of-a")):
        store.add_sub_session_refs(parent, [{"sub_session_id": child, "agent_type": "x"}])
    store.clone_session("a", "fork-of-b")
    Session.objects.filter(session_id="fork-of-b").update(owner_id=bob.pk)
    for owner, key, said in ((ada, "a", "mine"), (bob, "b", SECRET)):
        MemoryStore().put(home(owner), "k", {"text": said})
        store.create_schedule("daily", cron="0 8 * * *", agent_type="x", prompt=said, owner=owner)
        store.set_spend_limit(scope="owner", key=owner, window="day", usd=1)
        run = store.create_run(key).run_id
        store.update_run_status(key, run, "completed", usage={"cost": 0.5})
    store.set_spend_limit(scope="all", window="day", usd=10)
    MemoryStore().put(("team",), "k", {"text": SECRET})
    return ada, bob


def exported(store: SessionStore, **chosen: Any) -> str:
    file = io.StringIO()
    store.export_sessions(file, **chosen)
    return file.getvalue()


def sessions(text: str) -> set[str]:
    records = [json.loads(line) for line in text.splitlines()]
    return {record["session_id"] for record in records if record.get("kind") == "session"}


def empty() -> None:
    store = SessionStore()
    for key in Session.objects.values_list("session_id", flat=True):
        store.delete_session(key)
    for model in (Memory, Schedule, SpendEntry, SpendLimit, SpendTotal):
        model._default_manager.all().delete()
    assert not any(dump().values())


@pytest.mark.django_db
class TestExport:
    def test_it_has_what_is_the_owners(self, people: tuple[Any, Any]) -> None:
        ada, _ = people
        mine = SessionStore(owned_by=ada)
        for chosen in ({}, {"owner": ada}, {"user_id": "u"}, {"agent_type": "x"}):
            text = exported(mine, **chosen)
            assert sessions(text) == {"a", "b/of-a", "b/of-a/deep"}, chosen
            assert SECRET not in text, chosen
        kinds = {json.loads(line).get("kind") for line in exported(mine).splitlines()}
        assert {"memory", "schedule", "spend_limit", "spend_total"} <= kinds
        assert '"scope":"all"' not in exported(mine)

    def test_chosen_sessions(self, people: tuple[Any, Any]) -> None:
        ada, bob = people
        mine = SessionStore(owned_by=ada)
        assert sessions(exported(mine, session_ids=["b/of-a/deep"])) == {"b/of-a", "b/of-a/deep"}
        with pytest.raises(SessionNotFound):
            exported(mine, session_ids=["b"])
        with pytest.raises(InvalidInput):
            exported(mine, owner=bob)

    def test_it_comes_back(self, people: tuple[Any, Any]) -> None:
        mine = SessionStore(owned_by=people[0])
        tree, all_of_it = exported(mine, session_ids=["a"]), exported(mine)
        empty()
        mine.import_sessions(tree.splitlines())
        assert_healthy()
        assert exported(mine, session_ids=["a"]) == tree
        mine.import_sessions(
            all_of_it.splitlines(), on_collision="skip", check=False
        )  # whose parent is not there
        assert len(mine.get_messages("b/of-a/deep").messages) == 1


@pytest.mark.django_db
class TestImport:
    def test_what_comes_in_is_the_owners(self, people: tuple[Any, Any]) -> None:
        ada, _ = people
        text = exported(SessionStore())
        empty()
        summary = SessionStore(owned_by=ada).import_sessions(text.splitlines(), on_collision="skip")
        assert summary.memories == 1
        assert summary.skipped == 2  # Bob's memory has the key of Ada's, the team's is nobody's
        assert set(Session.objects.values_list("owner_id", flat=True)) == {ada.pk}
        assert set(Schedule.objects.values_list("owner_id", flat=True)) == {ada.pk}
        assert MemoryStore().list_namespaces() == [home(ada)]
        assert not SpendLimit.objects.exists()
        assert not SpendTotal.objects.exists()
        assert_healthy()

    def test_another_owner_is_refused(self, people: tuple[Any, Any]) -> None:
        ada, bob = people
        with pytest.raises(InvalidInput):
            SessionStore(owned_by=ada).import_sessions(exported(SessionStore()).splitlines(), owner=bob)

    def test_a_tree_below_a_session_of_another(self, people: tuple[Any, Any]) -> None:
        ada, _ = people
        mine = SessionStore(owned_by=ada)
        text = exported(mine, session_ids=["b/of-a"])
        mine.delete_session("b/of-a")
        before = dump()
        with pytest.raises(InvalidExport):
            mine.import_sessions(text.splitlines())
        assert dump() == before


@pytest.mark.django_db
class TestErase:
    def test_another_owner_is_refused(self, people: tuple[Any, Any]) -> None:
        ada, bob = people
        before = dump()
        with pytest.raises(InvalidInput):
            SessionStore(owned_by=ada).erase_user(owner=bob)
        with pytest.raises(InvalidInput):
            SessionStore(owned_by=ada).erase_user(owner=bob, user_id="u")
        assert dump() == before

    def test_it_removes_what_is_the_owners(self, people: tuple[Any, Any]) -> None:
        ada, bob = people
        mine = SessionStore(owned_by=ada)
        dry = mine.erase_user(owner=ada, include_forks=True, dry_run=True)
        assert (dry.sessions, dry.memories, dry.forks_left) == (3, 1, ())
        assert mine.erase_user(owner=ada, include_forks=True).errors == 0
        assert set(Session.objects.values_list("session_id", flat=True)) == {"b", "a/of-b", "fork-of-b"}
        assert sorted(MemoryStore().list_namespaces()) == [home(bob), ("team",)]
        assert list(Schedule.objects.values_list("owner_id", flat=True)) == [bob.pk]
        assert mine.erase_user(owner=ada) == ErasureSummary()

    def test_by_user_id(self, people: tuple[Any, Any]) -> None:
        ada, _ = people
        assert SessionStore(owned_by=ada).erase_user(user_id="u").sessions == 3
        assert set(Session.objects.values_list("session_id", flat=True)) == {"b", "a/of-b", "fork-of-b"}
        assert len(MemoryStore().list_namespaces()) == 3


@pytest.mark.django_db(transaction=True)
def test_a_move_is_not_for_a_store_of_one_owner(people: tuple[Any, Any]) -> None:
    for owner in people:
        with pytest.raises(InvalidInput, match="without an owner"):
            SessionStore(owned_by=people[0]).move_owner(owner, "replica")
