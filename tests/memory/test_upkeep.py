"""Owners, erasure, exports, clean-up and encryption: what else happens to memories."""

import base64
import io
import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from helix_sessions.exceptions import ForeignNamespace, InvalidExport, MemoryExists, SearchTooWide
from helix_sessions.memory import MemoryStore
from helix_sessions.models import Memory, MemoryVector
from helix_sessions.store import SessionStore
from tests.invariants import dump
from tests.memory.conftest import Clock, embed
from tests.rows import each

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(db: None) -> Any:
    return get_user_model().objects.create_user("ada")


@pytest.fixture
def bob(db: None) -> Any:
    return get_user_model().objects.create_user("bob")


def home(user: Any, *more: str) -> tuple[str, ...]:
    return ("owner", str(user.pk), *more)


class TestOwners:
    def test_a_store_of_an_owner_knows_only_the_owners(
        self, memories: MemoryStore, ada: Any, bob: Any
    ) -> None:
        theirs = (home(bob), ("team",), ("owner",), ("owner", f"{ada.pk}0"))
        for place in theirs:
            memories.put(place, "k", {"text": "tea"})
        mine = MemoryStore(owned_by=ada)
        mine.put(home(ada), "k", {"text": "tea"})
        mine.put(home(ada, "more"), "k", {"text": "tea"})
        own = [home(ada), home(ada, "more")]

        for place in theirs:
            assert mine.get(place, "k") is None, place
            mine.delete(place, "k")
            assert memories.get(place, "k") is not None, place
            with pytest.raises(ForeignNamespace):
                mine.put(place, "k", {"text": "changed"})
            with pytest.raises(ForeignNamespace):
                mine.batch([{"op": "put", "namespace": place, "key": "k", "value": {}}])
        for prefix in ((), ("owner",), home(ada)):
            for query in (None, "tea"):
                found = mine.search(prefix, query=query)
                assert sorted(memory.namespace for memory in found) == own, (prefix, query)
        assert mine.search(home(bob), query="tea") == mine.search(("team",)) == []
        assert mine.list_namespaces() == mine.list_namespaces(prefix=("*",)) == own
        assert mine.list_namespaces(prefix=home(bob)) == mine.list_namespaces(prefix=("team",)) == []
        assert mine.list_namespaces(max_depth=1) == [("owner",)]
        assert MemoryStore(owned_by=str(ada.pk)).get(home(ada), "k") is not None

    def test_an_erased_user_is_forgotten(
        self, memories: MemoryStore, store: SessionStore, ada: Any, bob: Any
    ) -> None:
        near = MemoryStore(embed=embed)
        for number in range(3):
            near.put(home(ada, f"{number}"), "k", {"text": "tea"})
        near.put(home(bob), "k", {"text": "tea"})
        near.put(("owner", f"{ada.pk}0"), "k", {"text": "tea"})

        assert store.erase_user(owner=ada, dry_run=True).memories == 3
        assert len(memories.search(home(ada))) == 3
        assert store.erase_user(user_id="ada").memories == 0
        assert store.erase_user(owner=ada).memories == 3

        assert memories.search(home(ada)) == []
        assert len(memories.search((), query="tea")) == 2
        assert MemoryVector.objects.count() == 2


class TestCleanup:
    @each("job", ["cleanup_debris", "expired_session_cleanup"])
    def test_what_has_expired_is_removed(self, store: SessionStore, clock: Clock, job: str) -> None:
        near = MemoryStore(embed=embed)
        near.put(("a",), "gone", {"text": "tea"}, ttl=10)
        near.put(("a",), "later", {"text": "tea"}, ttl=100)
        near.put(("a",), "stays", {"text": "tea"})
        clock.forward(11)

        getattr(store, job)(dry_run=True)
        assert Memory.objects.count() == 3
        getattr(store, job)()

        assert set(Memory.objects.values_list("key", flat=True)) == {"later", "stays"}
        assert MemoryVector.objects.count() == 2

    def test_it_is_counted(self, store: SessionStore, memories: MemoryStore, clock: Clock) -> None:
        memories.batch(
            [
                {"op": "put", "namespace": ("a",), "key": f"{n}", "value": {}, "ttl": 1 + n / 1e6}
                for n in range(1100)
            ]
        )
        clock.forward(10)
        assert store.cleanup_debris(dry_run=True).memories_removed == 1100
        assert store.cleanup_debris().memories_removed == 1100


def exported(store: SessionStore, **chosen: Any) -> tuple[str, Any]:
    file = io.StringIO()
    summary = store.export_sessions(file, **chosen)
    return file.getvalue(), summary


class TestTransfer:
    @pytest.fixture(autouse=True)
    def _filled(self, ada: Any, bob: Any, store: SessionStore) -> None:
        near = MemoryStore(embed=embed)
        store.create_session("s", agent_type="writer", owner=ada)
        near.put(home(ada, "\x01 odd"), "k", {"b": "Tea\x00", "a": [1.5, None]}, ttl=1000)
        near.put(home(bob), "k", {"text": "music"}, index=["text"])
        MemoryStore().put(("team",), "k", {"text": "travel"})

    def test_what_was_exported_comes_back(self, store: SessionStore, memories: MemoryStore) -> None:
        text, summary = exported(store)
        assert summary.memories == 3
        before, rows = memories.search(()), dump()
        Memory.objects.all().delete()
        store.delete_session("s")

        done = store.import_sessions(io.StringIO(text))

        assert done.memories == 3
        assert memories.search(()) == before
        assert [repr(memory.value) for memory in memories.search(())] == [repr(m.value) for m in before]
        for name in ("memory", "memoryvector"):
            assert dump()[f"helix_sessions_{name}"] == rows[f"helix_sessions_{name}"]
        assert len(memories.search((), query="tea")) == 1
        near = MemoryStore(embed=embed)
        assert near.search((), query="music")[0].value == {"text": "music"}

    def test_a_choice_takes_the_memories_that_belong_to_it(
        self, store: SessionStore, ada: Any, bob: Any
    ) -> None:
        for chosen, count in (
            ({"owner": ada}, 1),
            ({"owner": bob}, 1),
            ({"session_ids": ["s"]}, 0),
            ({"agent_type": "writer"}, 0),
            ({"user_id": "x"}, 0),
        ):
            text, summary = exported(store, **chosen)
            assert summary.memories == count, chosen
            assert text.count('"kind":"memory"') == count, chosen

    def test_memories_follow_the_new_owner(
        self, store: SessionStore, memories: MemoryStore, ada: Any, bob: Any
    ) -> None:
        text, _ = exported(store, owner=ada)
        store.import_sessions(io.StringIO(text), owner=bob, on_collision="renew")
        assert [memory.key for memory in memories.search(home(bob, "\x01 odd"))] == ["k"]
        assert len(memories.search(home(ada))) == 1
        before = len(memories.search(()))
        done = store.import_sessions(io.StringIO(text), owner=None, on_collision="renew")
        assert (done.memories, done.skipped) == (0, 1)
        assert len(memories.search(())) == before

    def test_what_exists_is_not_overwritten(self, store: SessionStore, memories: MemoryStore) -> None:
        text, _ = exported(store)
        store.delete_session("s")
        memories.put(("team",), "k", {"text": "changed"})
        with pytest.raises(MemoryExists):
            store.import_sessions(io.StringIO(text))
        store.delete_session("s")
        assert store.import_sessions(io.StringIO(text), on_collision="skip").skipped == 3
        assert memories.get(("team",), "k").value == {"text": "changed"}  # type: ignore[union-attr]
        done = store.import_sessions(io.StringIO(text), on_collision="renew")
        assert done.memories == 3
        assert len(memories.search(("team",))) == 2

    @each(
        "change",
        [
            {"namespace": []},
            {"namespace": "team"},
            {"key": ""},
            {"value": []},
            {"value": None},
            {"created_at": "yesterday"},
            {"updated_at": "2026-01-01T00:00:00"},
            {"expires_at": 5},
            {"ttl": -1},
            {"vectors": [["a"]]},
            {"vectors": 5},
            {"searchable": 5},
            {"more": 1},
            {"value": {"a": float("nan")}},
        ],
        ids=str,
    )
    def test_a_bad_record_is_refused(self, store: SessionStore, change: dict[str, Any]) -> None:
        text, _ = exported(store)
        lines = [line for line in text.splitlines() if '"kind":"memory"' in line or '"format"' in line]
        record = {**json.loads(lines[1]), **change}
        Memory.objects.all().delete()
        bad = "\n".join([lines[0], json.dumps(record), '{"kind":"end","trees":0}'])
        with pytest.raises(InvalidExport):
            store.import_sessions(bad.splitlines())
        assert Memory.objects.count() == 0


KEY = base64.b64encode(b"k" * 32).decode()
OTHER = base64.b64encode(b"o" * 32).decode()
SEALED = {"ENCRYPTION": {"keys": {"one": KEY}, "active": "one"}}
HOME = ("users", "ada")


class TestEncryption:
    def test_nothing_can_be_read_in_the_database(self, settings: Any) -> None:
        settings.HELIX_SESSIONS = SEALED
        near = MemoryStore(embed=embed)
        near.put(HOME, "k", {"text": "a secret about tea"})
        rows = repr(dump())
        assert "secret" not in rows
        assert MemoryVector.objects.get().vector is None
        found = near.get(HOME, "k")
        assert found is not None
        assert found.value == {"text": "a secret about tea"}

    def test_searches_go_on(self, settings: Any, keys: Any) -> None:
        memories, near = MemoryStore(), MemoryStore(embed=embed)
        near.put(HOME, "plain", {"text": "music", "n": 1})  # before encryption was switched on
        settings.HELIX_SESSIONS = SEALED
        near.put(HOME, "tea", {"text": "Green TEA", "n": 2})
        near.put(HOME, "teas", {"text": "tea and tea", "n": 3})
        near.put(HOME, "none", {"text": "tea"}, index=False)
        assert set(keys(memories.search((), query="tea"))) == {"tea", "teas"}
        assert keys(memories.search((), query="tea", limit=1)) == ["teas"]
        assert keys(memories.search((), query="music")) == ["plain"]
        assert keys(memories.search((), filter={"n": {"$gte": 2}}, query="green")) == ["tea"]
        assert set(keys(memories.search((), filter={"n": {"$lt": 3}}))) == {"plain", "tea"}
        assert keys(near.search((), query="music"))[0] == "plain"
        assert set(keys(near.search((), query="tea", limit=2))) == {"tea", "teas"}
        assert len(memories.search(())) == 4
        assert memories.search((), query="!!") == []

    def test_too_many_are_refused(self, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        settings.HELIX_SESSIONS = SEALED
        monkeypatch.setattr("helix_sessions.store.memory.searches.MAX_OPENED", 2)
        memories = MemoryStore()
        for number in range(3):
            memories.put((f"{number}",), "k", {"text": "tea"})
        with pytest.raises(SearchTooWide, match="encrypted"):
            memories.search((), query="tea")
        assert len(memories.search(("1",), query="tea")) == 1
        assert len(memories.search(())) == 3

    def test_rotation_seals_and_opens(self, settings: Any, store: SessionStore, keys: Any) -> None:
        near = MemoryStore(embed=embed)
        near.put(HOME, "k", {"text": "secret tea"})
        before = near.get(HOME, "k")
        for ring in (
            SEALED,
            {"ENCRYPTION": {"keys": {"one": KEY, "two": OTHER}, "active": "two"}},
            {"ENCRYPTION": {"keys": {"two": OTHER}, "active": None}},
        ):
            settings.HELIX_SESSIONS = ring
            assert store.rotate_encryption(dry_run=True).rows == 1
            assert store.rotate_encryption().rows == 1
            assert store.rotate_encryption().rows == 0
            assert ("secret" in repr(dump())) is (ring["ENCRYPTION"]["active"] is None)
            assert near.get(HOME, "k") == before
            assert keys(near.search((), query="tea")) == ["k"]
            assert keys(MemoryStore().search((), query="secret")) == ["k"]
        settings.HELIX_SESSIONS = {}
        assert keys(MemoryStore().search((), query="secret")) == ["k"]
        assert keys(near.search((), query="tea")) == ["k"]

    def test_an_export_is_plain(self, settings: Any, store: SessionStore, memories: MemoryStore) -> None:
        settings.HELIX_SESSIONS = SEALED
        MemoryStore(embed=embed).put(HOME, "k", {"text": "secret tea"})
        text, _ = exported(store)
        assert "secret tea" in text
        Memory.objects.all().delete()
        settings.HELIX_SESSIONS = {}
        store.import_sessions(io.StringIO(text))
        assert len(memories.search((), query="secret")) == 1
