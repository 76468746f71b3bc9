"""What the memory store promises: what was put is there, exactly, until it is deleted or expires."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import HelixSessionsError, InvalidDocument, InvalidInput
from helix_sessions.memory import MemoryStore
from tests.memory.conftest import Clock
from tests.rows import each

pytestmark = pytest.mark.django_db

HOME = ("users", "ada")


class TestPutAndGet:
    def test_what_was_put_comes_back(self, memories: MemoryStore) -> None:
        before = timezone.now()
        assert memories.put(HOME, "tea", {"likes": "green tea"}) is None

        found = memories.get(HOME, "tea")

        assert found is not None
        assert (found.namespace, found.key, found.value) == (HOME, "tea", {"likes": "green tea"})
        assert before <= found.created_at == found.updated_at <= timezone.now()
        assert found.expires_at is None
        assert found.score is None

    def test_what_was_not_put_is_none(self, memories: MemoryStore) -> None:
        memories.put(HOME, "tea", {})
        assert memories.get(HOME, "coffee") is None
        assert memories.get(("users",), "tea") is None
        assert memories.get((*HOME, "more"), "tea") is None

    def test_a_put_takes_the_place_of_the_one_before(self, memories: MemoryStore, clock: Clock) -> None:
        memories.put(HOME, "k", {"a": 1}, ttl=60)
        created = clock.now
        clock.forward(10)
        memories.put(HOME, "k", {"b": 2})

        found = memories.get(HOME, "k")

        assert found is not None
        assert found.value == {"b": 2}
        assert (found.created_at, found.updated_at, found.expires_at) == (created, clock.now, None)

    @each(
        "value",
        [
            {},
            {"b": 1, "a": 2},
            {"text": "\x00 null", "\x00": 1},
            {"deep": {"list": [1, 2.5, None, True, "x", {"y": []}]}},
            {"big": 2**70, "small": -1e-300, "zero": 0.0},
            {"emoji": "👩‍🚀", "é": "e\u0301"},
        ],
        ids=str,
    )
    def test_documents_come_back_exactly(self, memories: MemoryStore, value: Any) -> None:
        memories.put(HOME, "k", value)
        found = memories.get(HOME, "k")
        assert found is not None
        assert repr(found.value) == repr(value)

    @each(
        "value", [None, [], "text", 1, {"a": float("nan")}, {1: 2}, {"a": object()}, {"a": "\ud800"}], ids=str
    )
    def test_other_values_are_refused(self, memories: MemoryStore, value: Any) -> None:
        with pytest.raises(InvalidDocument):
            memories.put(HOME, "k", value)
        assert memories.search(()) == []

    def test_a_large_document_is_refused(self, memories: MemoryStore, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"MAX_DOCUMENT_BYTES": 1000}
        with pytest.raises(InvalidDocument):
            memories.put(HOME, "k", {"a": "x" * 1000})

    def test_what_is_returned_is_not_shared(self, memories: MemoryStore) -> None:
        given = {"list": [1]}
        memories.put(HOME, "k", given)
        given["list"].append(2)
        found = memories.get(HOME, "k")
        assert found is not None
        found.value["list"].append(3)
        again = memories.get(HOME, "k")
        assert again is not None
        assert again.value == {"list": [1]}

    def test_a_deleted_memory_is_gone(self, memories: MemoryStore) -> None:
        memories.put(HOME, "k", {"a": "word"})
        assert memories.delete(HOME, "k") is None
        memories.delete(HOME, "k")
        assert memories.get(HOME, "k") is None
        assert memories.search((), query="word") == []


class TestNames:
    @each(
        "namespace",
        [
            (),
            "users",
            ("",),
            ("a", ""),
            (1,),
            ("a",) * 11,
            None,
            {"a": 1},
            ("a\x00",),
            ("\ud800",),
            ("x" * 1500,),
        ],
        ids=lambda value: f"{value!r:.30}",
    )
    def test_bad_namespaces_are_refused(self, memories: MemoryStore, namespace: Any) -> None:
        for call in (
            lambda: memories.put(namespace, "k", {}),
            lambda: memories.get(namespace, "k"),
            lambda: memories.delete(namespace, "k"),
        ):
            with pytest.raises(InvalidInput):
                call()

    @each("key", ["", None, 1, "x" * 256, "a\x00", "\ud800"], ids=lambda value: f"{value!r:.20}")
    def test_bad_keys_are_refused(self, memories: MemoryStore, key: Any) -> None:
        with pytest.raises(InvalidInput):
            memories.put(HOME, key, {})

    def test_any_other_text_is_a_name(self, memories: MemoryStore) -> None:
        odd = [
            ("a.b",),
            ("a/b", "*"),
            ("a\x01", "\x02"),
            ("\x01\x02\x01",),
            ("\x02\x03",),
            ("a b\n", "%_'\"\\"),
            ("日本",) * 10,
        ]
        for namespace in odd:
            memories.put(namespace, "\x01k", {"n": list(namespace)})
        for namespace in odd:
            found = memories.get(namespace, "\x01k")
            assert found is not None
            assert found.namespace == namespace
        assert memories.list_namespaces() == sorted(odd)

    def test_lists_are_namespaces_too(self, memories: MemoryStore) -> None:
        memories.put(["a", "b"], "k", {})
        assert memories.get(("a", "b"), "k") is not None


class TestTtl:
    def test_what_has_expired_is_invisible(self, memories: MemoryStore, clock: Clock) -> None:
        memories.put(HOME, "k", {"a": "word"}, ttl=60)
        found = memories.get(HOME, "k")
        assert found is not None
        assert found.expires_at == clock.now + timedelta(seconds=60)
        clock.forward(59.9)
        assert memories.get(HOME, "k") is not None
        clock.forward(0.1)
        assert memories.get(HOME, "k") is None
        assert memories.search(()) == []
        assert memories.search((), query="word") == []
        assert memories.list_namespaces() == []
        assert memories.batch([{"op": "get", "namespace": HOME, "key": "k"}]) == [None]

    def test_a_put_over_what_has_expired_is_new(self, memories: MemoryStore, clock: Clock) -> None:
        memories.put(HOME, "k", {"a": 1}, ttl=60)
        clock.forward(61)
        memories.put(HOME, "k", {"a": 2}, ttl=0.5)
        found = memories.get(HOME, "k")
        assert found is not None
        assert found.created_at == clock.now

    def test_a_put_sets_it_anew(self, memories: MemoryStore, clock: Clock) -> None:
        memories.put(HOME, "k", {}, ttl=60)
        created = clock.now
        clock.forward(50)
        memories.put(HOME, "k", {}, ttl=60)
        clock.forward(50)
        found = memories.get(HOME, "k")
        assert found is not None
        assert found.created_at == created

    @each("ttl", [0, -1, "60", True, float("nan"), float("inf"), 1e300])
    def test_bad_ttls_are_refused(self, memories: MemoryStore, ttl: Any) -> None:
        with pytest.raises(InvalidInput):
            memories.put(HOME, "k", {}, ttl=ttl)


class TestNamespaces:
    PLACES = [
        ("a",),
        ("a", "b"),
        ("a", "b", "c"),
        ("a", "b", "d", "e"),
        ("a", "c", "f"),
        ("a!",),
        ("ab", "f"),
        ("b", "a", "f"),
    ]

    @pytest.fixture(autouse=True)
    def _places(self, memories: MemoryStore) -> None:
        for place in self.PLACES:
            memories.put(place, "1", {})
            memories.put(place, "2", {})

    @each(
        ("given", "expected"),
        [
            ({}, PLACES),
            ({"prefix": ("a",)}, PLACES[:5]),
            ({"prefix": ["a", "b"]}, PLACES[1:4]),
            ({"suffix": ("f",)}, [("a", "c", "f"), ("ab", "f"), ("b", "a", "f")]),
            ({"prefix": ("*", "a")}, [("b", "a", "f")]),
            ({"prefix": ("a", "*", "f")}, [("a", "c", "f")]),
            ({"suffix": ("*", "f")}, [("a", "c", "f"), ("ab", "f"), ("b", "a", "f")]),
            ({"prefix": ("a",), "suffix": ("f",)}, [("a", "c", "f")]),
            ({"max_depth": 1}, [("a",), ("a!",), ("ab",), ("b",)]),
            ({"max_depth": 2, "prefix": ("a", "b")}, [("a", "b")]),
            ({"limit": 2, "offset": 1}, PLACES[1:3]),
            ({"limit": 0}, []),
            ({"offset": 100}, []),
            ({"prefix": ("nowhere",)}, []),
        ],
        ids=str,
    )
    def test_they_are_listed_in_order(
        self, memories: MemoryStore, given: dict[str, Any], expected: list[Any]
    ) -> None:
        assert memories.list_namespaces(**given) == expected

    def test_a_prefix_ends_at_the_end_of_a_part(self, memories: MemoryStore) -> None:
        assert {memory.namespace for memory in memories.search(("a",), limit=100)} == set(self.PLACES[:5])
        assert {memory.namespace for memory in memories.search((), limit=100)} == set(self.PLACES)

    def test_more_than_a_page(self, memories: MemoryStore) -> None:
        many = [("many", f"{number:03}", part) for number in range(250) for part in ("x", "y")]
        memories.batch([{"op": "put", "namespace": place, "key": "k", "value": {}} for place in many])
        assert memories.list_namespaces(prefix=("many",), limit=1000) == many
        cut = memories.list_namespaces(prefix=("many",), limit=1000, max_depth=2)
        assert cut == [("many", f"{number:03}") for number in range(250)]
        assert memories.list_namespaces(prefix=("many",), max_depth=1) == [("many",)]

    @each(
        ("given", "expected"),
        [
            ({"prefix": ("*", "x")}, [("many",)]),
            ({"prefix": ("many", "x")}, [("many",)]),
            ({"suffix": ("x",)}, [("many",)]),
            ({"prefix": ("*", "x"), "suffix": ("x",)}, [("many",)]),
            ({"prefix": ("*", "y")}, []),
            ({"prefix": ("other",)}, []),
        ],
        ids=str,
    )
    def test_a_cut_namespace_that_only_a_later_page_has(
        self, memories: MemoryStore, given: dict[str, Any], expected: list[Any]
    ) -> None:
        many = [("many", f"b{number:03}") for number in range(300)] + [("many", "x")]
        memories.batch([{"op": "put", "namespace": place, "key": "k", "value": {}} for place in many])
        found = memories.list_namespaces(max_depth=1, **given)
        assert [place for place in found if place == ("many",)] == expected

    @each("pattern", [0, "", "a", b"", {}, ("",)], ids=str)
    def test_patterns_that_are_none(self, memories: MemoryStore, pattern: Any) -> None:
        for name in ("prefix", "suffix"):
            with pytest.raises(InvalidInput):
                memories.list_namespaces(**{name: pattern})


class TestBatch:
    def test_operations_are_answered_in_order(self, memories: MemoryStore) -> None:
        found = memories.batch(
            [
                {"op": "get", "namespace": HOME, "key": "k"},
                {"op": "put", "namespace": HOME, "key": "k", "value": {"n": 1}},
                {"op": "get", "namespace": HOME, "key": "k"},
                {"op": "put", "namespace": HOME, "key": "k", "value": {"n": 2}},
                {"op": "put", "namespace": HOME, "key": "l", "value": {"n": 3}, "ttl": 60},
                {"op": "search", "prefix": (), "filter": {"n": {"$gte": 2}}},
                {"op": "delete", "namespace": HOME, "key": "l"},
                {"op": "list_namespaces"},
                {"op": "get", "namespace": HOME, "key": "l"},
            ]
        )
        assert found[0] is None
        assert found[1] is None
        assert found[2].value == {"n": 1}
        assert {memory.key for memory in found[5]} == {"k", "l"}
        assert found[7] == [HOME]
        assert found[8] is None
        assert memories.batch([]) == []

    @each(
        "bad",
        [
            {"op": "put", "namespace": HOME, "key": "", "value": {}},
            {"op": "put", "namespace": HOME, "key": "k"},
            {"op": "put", "namespace": HOME, "key": "k", "value": []},
            {"op": "forget", "namespace": HOME, "key": "k"},
            {"namespace": HOME, "key": "k"},
            {"op": "get", "namespace": HOME, "key": "k", "more": 1},
            {"op": "get", "namespace": HOME, "key": "k", "refresh": True},
            {"op": "search", "prefix": (), "filter": {"a": {"$in": [1]}}},
            "get",
        ],
        ids=str,
    )
    def test_one_bad_operation_and_nothing_is_written(self, memories: MemoryStore, bad: Any) -> None:
        good = {"op": "put", "namespace": HOME, "key": "good", "value": {}}
        with pytest.raises(HelixSessionsError):
            memories.batch([good, bad])
        assert memories.get(HOME, "good") is None

    def test_a_put_behind_a_deletion_is_new(self, memories: MemoryStore, clock: Clock) -> None:
        put = {"op": "put", "namespace": HOME, "key": "k", "value": {}}
        delete = {"op": "delete", "namespace": HOME, "key": "k"}
        for several in ([delete, put], [put, delete, put], [delete, put, put]):
            memories.put(HOME, "k", {})
            clock.forward(1)
            memories.batch(several)
            found = memories.get(HOME, "k")
            assert found is not None, several
            assert found.created_at == clock.now, several

    def test_the_last_put_of_a_key_counts(self, memories: MemoryStore) -> None:
        put = {"op": "put", "namespace": HOME, "key": "k"}
        memories.batch([{**put, "value": {"n": 1}}, {**put, "value": {"n": 2}}])
        found = memories.get(HOME, "k")
        assert found is not None
        assert found.value == {"n": 2}
        memories.batch([{**put, "value": {"n": 3}}, {"op": "delete", "namespace": HOME, "key": "k"}])
        assert memories.get(HOME, "k") is None
