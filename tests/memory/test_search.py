"""Searches: by words, by nearness, by filter; the same on both databases."""

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections

from helix_sessions.exceptions import HelixSessionsError, InvalidInput, SearchTooWide
from helix_sessions.memory import AsyncMemoryStore, MemoryStore
from helix_sessions.store.memory import databases
from tests.memory.conftest import Clock, embed
from tests.rows import each

pytestmark = pytest.mark.django_db

HOME = ("users", "ada")

FACTS: dict[str, dict[str, Any]] = {
    "tea": {"text": "Ada likes green tea, and green apples", "n": 1},
    "coffee": {"text": "Never offer COFFEE to Ada.", "n": 2},
    "train": {"text": "Prefers trains", "more": ["to Málaga", {"via": "Straße 5"}], "n": 3.5},
    "none": {"n": 4, "flag": True, "nothing": None},
}


@pytest.fixture
def facts(memories: MemoryStore, clock: Clock) -> MemoryStore:
    for key, value in FACTS.items():
        memories.put(HOME, key, value)
        clock.forward(1)
    return memories


class TestWords:
    @each(
        ("query", "expected"),
        [
            ("tea", {"tea"}),
            ("TEA Ada", {"tea"}),
            ("ada", {"tea", "coffee"}),
            ("ada train", set()),
            ("malaga", {"train"}),
            ("MÁLAGA strasse", {"train"}),
            ("to via", set()),
            ("apple", set()),
            ("tea, tea!", {"tea"}),
            ("text", set()),
            ("4", set()),
            ("5", {"train"}),
            ("!!!", set()),
            ('"tea" OR coffee', set()),
            ("tea NOT apples", set()),
            ("te*", set()),
            ("searchable:tea", set()),
            ("' -- \x00 \\ % _ ( ) & | ! : <-> {", set()),
            ("tea\x00ada", {"tea"}),
            ("\ud800", set()),
            ("x" * 5000, set()),
        ],
        ids=lambda row: f"{row[0]!r:.30}",
    )
    def test_every_word_in_any_case(
        self, facts: MemoryStore, query: str, expected: set[str], keys: Any
    ) -> None:
        assert set(keys(facts.search((), query=query))) == expected

    @each(
        ("text", "query"),
        [
            ("这是中文", "中文"),
            ("これは日本語です", "日本語"),
            ("이건 한국어야", "한국어야"),
            ("Это русский язык", "РУССКИЙ"),
            ("यह रूसी है", "रूसी"),
            ("ภาษาไทย", "ไทย"),
            ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
            ("İstanbul", "istanbul"),
            ("e\u0301te\u0301", "été"),
            ("ﬁne", "fine"),
        ],
        ids=lambda row: row[0],
    )
    def test_in_any_language(self, memories: MemoryStore, text: str, query: str, keys: Any) -> None:
        memories.put(HOME, "k", {"text": text})
        memories.put(HOME, "other", {"text": "something else"})
        assert keys(memories.search((), query=query)) == ["k"]

    def test_the_best_comes_first(self, memories: MemoryStore, keys: Any) -> None:
        memories.put(HOME, "once", {"text": "tea is one of very many things that somebody may like or not"})
        memories.put(HOME, "often", {"text": "tea, black tea, green tea"})
        found = memories.search((), query="tea")
        assert keys(found) == ["often", "once"]
        scores = [memory.score or 0 for memory in found]
        assert all(score > 0 for score in scores)
        assert scores == sorted(scores, reverse=True)

    def test_pages_are_parts_of_one_order(self, memories: MemoryStore, keys: Any) -> None:
        for number in range(7):
            memories.put(HOME, f"{number}", {"text": "tea " * (number + 1) + "and more"})
        whole = keys(memories.search((), query="tea"))
        assert len(whole) == 7
        pages = [keys(memories.search((), query="tea", limit=3, offset=offset)) for offset in (0, 3, 6, 9)]
        assert pages == [whole[:3], whole[3:6], whole[6:], []]
        assert memories.search((), query="tea", limit=0) == []

    def test_only_what_is_under_the_prefix(self, facts: MemoryStore, keys: Any) -> None:
        facts.put(("users", "bob"), "tea", {"text": "tea"})
        assert [memory.namespace for memory in facts.search(HOME, query="tea")] == [HOME]
        assert len(facts.search(("users",), query="tea")) == 2
        assert facts.search(("us",), query="tea") == []

    def test_what_is_indexed_can_be_chosen(self, memories: MemoryStore, keys: Any) -> None:
        value = {"title": "tea", "body": "coffee", "tags": ["music"]}
        memories.put(HOME, "all", value)
        memories.put(HOME, "some", value, index=["title", "tags", "missing"])
        memories.put(HOME, "none", value, index=False)
        assert set(keys(memories.search((), query="tea"))) == {"all", "some"}
        assert set(keys(memories.search((), query="music"))) == {"all", "some"}
        assert keys(memories.search((), query="coffee")) == ["all"]
        assert set(keys(memories.search(()))) == {"all", "some", "none"}

    @each("index", ["title", True, {"a": 1}, [1], 5, ["x"] * 3 + [f"{n}" for n in range(257)]], ids=str)
    def test_a_bad_index_is_refused(self, memories: MemoryStore, index: Any) -> None:
        with pytest.raises(InvalidInput):
            memories.put(HOME, "k", {}, index=index)

    def test_a_put_changes_what_is_found(self, memories: MemoryStore, keys: Any) -> None:
        memories.put(HOME, "k", {"text": "tea"})
        memories.put(HOME, "k", {"text": "coffee"})
        assert memories.search((), query="tea") == []
        assert keys(memories.search((), query="coffee")) == ["k"]

    def test_a_long_text_is_found_by_its_beginning(self, memories: MemoryStore, keys: Any) -> None:
        many = " ".join(f"word{number}" for number in range(60_000))
        memories.put(HOME, "long", {"text": many, "end": "last"})
        assert keys(memories.search((), query="word17")) == ["long"]
        assert memories.search((), query="last") == []


class TestWithoutQuery:
    def test_the_newest_comes_first(self, facts: MemoryStore, keys: Any) -> None:
        assert keys(facts.search(())) == ["none", "train", "coffee", "tea"]
        assert keys(facts.search((), limit=2, offset=1)) == ["train", "coffee"]
        facts.put(HOME, "tea", {"n": 1})
        assert keys(facts.search(()))[0] == "tea"
        assert {memory.score for memory in facts.search(())} == {None}

    @each("query", [None, "", "  \n"])
    def test_a_blank_query_is_none(self, facts: MemoryStore, query: Any) -> None:
        assert len(facts.search((), query=query)) == 4

    @each(
        "bad",
        [
            {"query": 5},
            {"limit": -1},
            {"limit": "10"},
            {"offset": -1},
            {"filter": []},
            {"filter": {"a": {"$in": [1]}}},
            {"filter": {"a": {"$gt": 1, "other": 2}}},
            {"filter": {"a": {"$gt": None}}},
            {"filter": {"a": {"$lt": True}}},
            {"filter": {"a": {"$gte": [1]}}},
            {"filter": {"a": float("nan")}},
            {"filter": {1: 2}},
            {"filter": {f"{n}": n for n in range(65)}},
        ],
        ids=lambda value: f"{value!r:.40}",
    )
    def test_bad_arguments_are_refused(self, facts: MemoryStore, bad: Any) -> None:
        with pytest.raises(HelixSessionsError):
            facts.search((), **bad)
        for prefix in ("users", None, ("",), (1,)):
            with pytest.raises(InvalidInput):
                facts.search(prefix)  # type: ignore[arg-type]


VALUES: dict[str, Any] = {
    "one": {"n": 1, "s": "a", "b": True, "o": {"x": 1, "y": [2]}, "a.b": 1, "z": None},
    "two": {"n": 2.0, "s": "b", "b": False, "o": {"y": [2], "x": 1.0}},
    "text": {"n": "1", "s": "B", "b": 1, "o": [2]},
    "null": {"n": None, "s": "", "\x00": "\x00"},
    "odd": {"n": -3, "s": "é", "'\"\\": 1, "t": "\\u0000", "big": 2**60},
    "none": {},
}


class TestFilters:
    @pytest.fixture(autouse=True)
    def _values(self, memories: MemoryStore) -> None:
        for key, value in VALUES.items():
            memories.put(HOME, key, value)

    @each(
        ("wanted", "expected"),
        [
            ({}, set(VALUES)),
            ({"n": 1}, {"one"}),
            ({"n": 1.0}, {"one"}),
            ({"n": 2}, {"two"}),
            ({"n": "1"}, {"text"}),
            ({"n": None}, {"null", "none"}),
            ({"b": True}, {"one"}),
            ({"b": 1}, {"text"}),
            ({"o": {"x": 1, "y": [2]}}, {"one", "two"}),
            ({"o": {"x": 1}}, set()),
            ({"o": [2]}, {"text"}),
            ({"n": 1, "s": "a"}, {"one"}),
            ({"n": 1, "s": "b"}, set()),
            ({"n": {"$eq": 2}}, {"two"}),
            ({"n": {"$ne": 1}}, set(VALUES) - {"one"}),
            ({"n": {"$gt": 1}}, {"two"}),
            ({"n": {"$gte": 1}}, {"one", "two"}),
            ({"n": {"$lt": 1}}, {"odd"}),
            ({"n": {"$lte": 1.5}}, {"one", "odd"}),
            ({"n": {"$gt": -5, "$lt": 2}}, {"one", "odd"}),
            ({"s": {"$gt": "a"}}, {"two", "odd"}),
            ({"s": {"$gte": "B"}}, {"one", "two", "text", "odd"}),
            ({"s": {"$lt": "a"}}, {"text", "null"}),
            ({"a.b": 1}, {"one"}),
            ({"a": {"b": 1}}, set()),
            ({"o.x": 1}, set()),
            ({"\x00": "\x00"}, {"null"}),
            ({"t": "\\u0000"}, {"odd"}),
            ({"t": "\x00"}, set()),
            ({"'\"\\": 1}, {"odd"}),
            ({"big": 2**60}, {"odd"}),
            ({"big": {"$gt": 2**60 - 1}}, {"odd"}),
            ({"big": {"$gt": 2**60}}, set()),
            ({"s": {"$eq": {"$gt": 1}}}, set()),
        ],
        ids=lambda row: str(row[0]),
    )
    def test_a_filter_means_the_same_everywhere(
        self, memories: MemoryStore, wanted: Any, expected: set[str], keys: Any
    ) -> None:
        assert set(keys(memories.search((), filter=wanted))) == expected

    def test_pages_count_what_fits(self, memories: MemoryStore, keys: Any) -> None:
        wanted = {"n": {"$ne": 1}}
        whole = keys(memories.search((), filter=wanted))
        assert keys(memories.search((), filter=wanted, limit=2, offset=2)) == whole[2:4]

    def test_with_a_query_both_must_fit(self, memories: MemoryStore, keys: Any) -> None:
        memories.put(HOME, "x", {"text": "tea", "n": 1})
        memories.put(HOME, "y", {"text": "tea", "n": 2})
        assert keys(memories.search((), query="tea", filter={"n": 2})) == ["y"]


@pytest.fixture
def pgvector(engine: str, db: None) -> Iterator[None]:
    """The extension, where the server has it. It goes with the test's transaction."""
    if engine != "postgresql":
        pytest.skip("pgvector is an extension of PostgreSQL")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'")
        if not cursor.fetchone()[0]:
            pytest.skip("this server has no pgvector")
        cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
    vars(connections["default"]).pop(databases._PGVECTOR, None)
    yield
    vars(connections["default"]).pop(databases._PGVECTOR, None)


class TestNearness:
    @pytest.fixture
    def near(self, clock: Clock) -> MemoryStore:
        store = MemoryStore(embed=embed)
        for key, text in (
            ("tea", "tea, tea"),
            ("both", "tea and music"),
            ("music", "music"),
            ("nothing", "something"),
        ):
            store.put(HOME, key, {"text": text})
            clock.forward(1)
        return store

    def test_the_nearest_comes_first(self, near: MemoryStore, keys: Any) -> None:
        found = near.search((), query="which TEA?")
        assert keys(found) == ["tea", "both", "nothing", "music"]
        assert [memory.score for memory in found] == pytest.approx([1, 0.5**0.5, 0, 0], abs=1e-6)
        assert keys(near.search((), query="tea", limit=1, offset=1)) == ["both"]

    def test_prefix_filter_and_ttl_hold(self, near: MemoryStore, clock: Clock, keys: Any) -> None:
        near.put(("users", "bob"), "k", {"text": "tea"})
        near.put(HOME, "short", {"text": "tea", "n": 1}, ttl=5)
        assert [memory.key for memory in near.search(HOME, query="tea", filter={"n": 1})] == ["short"]
        assert len(near.search(("users", "bob"), query="tea")) == 1
        clock.forward(6)
        assert "short" not in keys(near.search((), query="tea"))

    def test_the_best_text_of_a_memory_counts(self, near: MemoryStore, keys: Any) -> None:
        near.put(HOME, "two", {"a": "travel", "b": "tea"}, index=["a", "b"])
        near.put(HOME, "one", {"a": "travel", "b": "tea"})
        near.put(HOME, "no", {"a": "travel"}, index=False)
        found = near.search((), query="travel")
        assert keys(found)[:2] == ["two", "one"]
        assert "no" not in keys(found)

    def test_a_put_replaces_the_vectors(self, near: MemoryStore, keys: Any) -> None:
        near.put(HOME, "tea", {"text": "music"})
        assert keys(near.search((), query="tea"))[0] == "both"
        near.put(HOME, "tea", {"text": "music"}, index=False)
        assert "tea" not in keys(near.search((), query="music"))
        near.delete(HOME, "music")
        assert keys(near.search((), query="music"))[0] == "both"
        MemoryStore().put(HOME, "both", {"text": "tea"})  # by a process without the embedder
        assert "both" not in keys(near.search((), query="tea"))

    def test_vectors_of_another_length_are_left_out(self, near: MemoryStore, keys: Any) -> None:
        other = MemoryStore(embed=lambda texts: [[1.0, 0.0] for _ in texts])
        other.put(HOME, "other", {"text": "tea"})
        assert keys(other.search((), query="tea")) == ["other"]
        assert "other" not in keys(near.search((), query="tea"))

    def test_one_call_embeds_a_batch(self) -> None:
        calls: list[list[str]] = []

        def counted(texts: list[str]) -> list[list[float]]:
            calls.append(list(texts))
            return embed(texts)

        store = MemoryStore(embed=counted)
        found = store.batch(
            [
                {"op": "put", "namespace": HOME, "key": "a", "value": {"text": "tea"}},
                {"op": "search", "prefix": (), "query": "tea"},
                {"op": "put", "namespace": HOME, "key": "b", "value": {"text": "music"}},
                {"op": "search", "prefix": (), "query": "music"},
            ]
        )
        assert calls == [["tea", "tea", "music", "music"]]
        assert [memory.key for memory in found[1]] == ["a"]
        assert [memory.key for memory in found[3]] == ["b", "a"]
        store.get(HOME, "a")
        store.search(())
        assert len(calls) == 1

    def test_an_embedder_that_fails_writes_nothing(self, memories: MemoryStore) -> None:
        def broken(texts: list[str]) -> Any:
            raise ConnectionError("no model")

        with pytest.raises(ConnectionError):
            MemoryStore(embed=broken).put(HOME, "k", {"text": "tea"})
        assert memories.get(HOME, "k") is None

    @each(
        "returned",
        [
            None,
            "x",
            [],
            [[1.0], [2.0]],
            [["a"]],
            [[]],
            [[float("nan")]],
            [[float("inf")]],
            [5],
            [[1.0] * 16_001],
        ],
        ids=lambda value: f"{value!r:.30}",
    )
    def test_what_is_no_vector_writes_nothing(self, memories: MemoryStore, returned: Any) -> None:
        with pytest.raises(InvalidInput):
            MemoryStore(embed=lambda texts: returned).put(HOME, "k", {"text": "tea"})
        assert memories.get(HOME, "k") is None

    def test_the_embedder_of_the_settings(self, settings: Any, keys: Any) -> None:
        settings.HELIX_SESSIONS = {"EMBEDDER": "tests.memory.conftest.embed"}
        MemoryStore().put(HOME, "k", {"text": "tea"})
        assert keys(MemoryStore().search((), query="much tea")) == ["k"]
        settings.HELIX_SESSIONS = {"EMBEDDER": "tests.memory.conftest.missing"}
        with pytest.raises(HelixSessionsError, match="EMBEDDER"):
            MemoryStore().search((), query="tea")

    def test_a_search_among_too_many_is_refused(
        self, near: MemoryStore, monkeypatch: pytest.MonkeyPatch, engine: str
    ) -> None:
        monkeypatch.setattr("helix_sessions.store.memory.vectors.MAX_COMPARED", 3)
        monkeypatch.setattr(
            "helix_sessions.store.memory.databases._schema_of_pgvector", lambda connection: None
        )
        with pytest.raises(SearchTooWide, match="pgvector"):
            near.search((), query="tea")
        assert len(near.search((), query="tea", filter={"text": "music"})) == 1


@pytest.mark.usefixtures("pgvector")
class TestNearnessByPgvector(TestNearness):
    """The same, and the database compares."""

    def test_any_number_is_compared(
        self, near: MemoryStore, monkeypatch: pytest.MonkeyPatch, keys: Any
    ) -> None:
        monkeypatch.setattr("helix_sessions.store.memory.vectors.MAX_COMPARED", 0)
        assert keys(near.search((), query="tea"))[:2] == ["tea", "both"]


@pytest.mark.django_db(transaction=True)
def test_awaited_calls_do_what_the_others_do(memories: MemoryStore) -> None:
    async def aembed(texts: list[str]) -> list[list[float]]:
        return embed(texts)

    store = AsyncMemoryStore(embed=aembed)

    @async_to_sync
    async def scenario() -> list[Any]:
        await store.put(HOME, "k", {"text": "tea"}, ttl=60)
        await store.put(HOME, "l", {"text": "music"})
        await store.delete(HOME, "l")
        return [
            await store.get(HOME, "k"),
            await store.search((), query="tea"),
            await store.list_namespaces(),
            await store.batch([{"op": "get", "namespace": HOME, "key": "l"}]),
        ]

    got, searched, listed, batched = scenario()
    assert got == memories.get(HOME, "k")
    assert [memory.key for memory in searched] == ["k"]
    assert (listed, batched) == ([HOME], [None])
    assert store.using == "default"
