"""Many writers at once: nothing is lost, doubled or half written, and nobody waits for ever."""

import threading
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from helix_sessions.exceptions import SessionBusy
from helix_sessions.memory import MemoryStore
from helix_sessions.models import Memory, MemoryVector
from tests.memory.conftest import embed

pytestmark = pytest.mark.django_db(transaction=True)

HOME = ("users", "ada")


def test_many_puts_of_one_key_are_one_memory(run_threads: Any) -> None:
    def write(number: int) -> None:
        store = MemoryStore(embed=embed)
        for turn in range(10):
            texts = {f"{part}": "tea" for part in range(1 + number % 3)}
            store.put(HOME, "k", {"by": number, "turn": turn, **texts}, index=list(texts))

    run_threads(6, write)

    [row] = Memory.objects.all()
    found = MemoryStore().get(HOME, "k")
    assert found is not None
    assert found.value["turn"] == 9
    vectors = MemoryVector.objects.filter(memory_id=row.pk).count()
    assert vectors == MemoryVector.objects.count() == 1 + found.value["by"] % 3
    assert len(MemoryStore().search((), query="tea")) == 1


def test_puts_of_one_key_that_wait_for_each_other_leave_the_vectors_of_the_last(run_threads: Any) -> None:
    """Each has begun before the one it waits for is done, and so cannot see all that it leaves."""
    before = MemoryStore(embed=embed)
    before.put(HOME, "k", {"0": "tea", "1": "music", "2": "tea music"}, index=["0", "1", "2"])
    waiting = threading.Barrier(4)

    def write(number: int) -> None:
        store = MemoryStore(embed=embed)
        for turn in range(20):
            waiting.wait()
            words = ("tea", "music", "tea music")[: 1 + (number + turn) % 3]
            texts = {str(part): word for part, word in enumerate(words)}
            store.put(HOME, "k", texts, index=list(texts))  # a vector for each

    assert run_threads(4, write) == [None] * 4
    found = MemoryStore().get(HOME, "k")
    assert found is not None
    assert MemoryVector.objects.count() == len(found.value)


def test_first_puts_of_one_key_at_once_leave_the_vectors_of_the_last(run_threads: Any) -> None:
    waiting = threading.Barrier(4)

    def write(number: int) -> None:
        store = MemoryStore(embed=embed)
        for turn in range(20):
            waiting.wait()
            words = ("tea", "music", "tea music")[: 1 + (number + turn) % 3]
            texts = {str(part): word for part, word in enumerate(words)}
            store.put(HOME, f"k{turn}", texts, index=list(texts))  # a vector for each

    assert run_threads(4, write) == [None] * 4
    memories = MemoryStore().search(HOME, limit=100)
    assert len(memories) == 20
    for memory in memories:
        row = Memory.objects.get(key=memory.key)
        assert MemoryVector.objects.filter(memory_id=row.pk).count() == len(memory.value), memory.key


def test_batches_that_cross_do_not_stop_each_other(run_threads: Any) -> None:
    keys = [f"{number}" for number in range(20)]

    def write(number: int) -> None:
        order = keys if number % 2 else keys[::-1]
        for turn in range(5):
            MemoryStore().batch(
                [
                    {"op": "put", "namespace": HOME, "key": key, "value": {"by": [number, turn]}}
                    for key in order
                ]
            )

    run_threads(4, write)

    values = [memory.value["by"] for memory in MemoryStore().search((), limit=100)]
    assert len(values) == 20
    assert len({tuple(value) for value in values}) == 1, "the last batch wrote all of them"


def test_a_batch_is_whole_or_not_there(run_threads: Any) -> None:
    pair = [{"op": "put", "namespace": HOME, "key": key} for key in ("a", "b")]
    MemoryStore().batch([{**put, "value": {"n": 0}} for put in pair])
    torn: list[Any] = []

    def work(number: int) -> None:
        store = MemoryStore()
        for turn in range(1, 30):
            if number < 2:
                store.batch([{**put, "value": {"n": [number, turn]}} for put in pair])
            else:
                found = store.search((), limit=2)
                torn.extend([found] if len({repr(memory.value) for memory in found}) != 1 else [])

    run_threads(4, work)
    assert torn == []


def test_deletes_leave_nothing_behind(run_threads: Any) -> None:
    def work(number: int) -> None:
        store = MemoryStore(embed=embed)
        for _ in range(10):
            if number % 2:
                store.put(HOME, "k", {"text": "tea"})
            else:
                store.delete(HOME, "k")

    run_threads(4, work)
    MemoryStore().delete(HOME, "k")
    assert Memory.objects.count() == MemoryVector.objects.count() == 0
    assert MemoryStore().search((), query="tea") == []


def test_a_memory_that_is_locked_is_not_waited_for_for_ever(
    run_threads: Any, settings: Any, engine: str
) -> None:
    if engine == "sqlite":
        pytest.skip("SQLite has one lock, and waits as its connection says")
    settings.HELIX_SESSIONS = {"LOCK_TIMEOUT": 0.2}
    MemoryStore().put(HOME, "k", {"n": 1})
    with transaction.atomic():
        MemoryStore().put(HOME, "k", {"n": 2})

        def other(number: int) -> None:
            for attempt in (
                lambda: MemoryStore().put(HOME, "k", {"n": 3}),
                lambda: MemoryStore(embed=embed).put(HOME, "k", {"text": "tea"}),
                lambda: MemoryStore().delete(HOME, "k"),
            ):
                with pytest.raises(SessionBusy):
                    attempt()

        run_threads(1, other)
    assert MemoryStore().get(HOME, "k").value == {"n": 2}  # type: ignore[union-attr]


def test_a_callers_transaction_is_joined() -> None:
    store = MemoryStore(embed=embed)
    with transaction.atomic():
        store.put(HOME, "k", {"text": "tea"})
        assert store.get(HOME, "k") is not None
        assert len(MemoryStore().search((), query="tea")) == 1
        transaction.set_rollback(True)
    assert store.get(HOME, "k") is None
    assert store.search((), query="tea") == []
    assert MemoryStore().search((), query="tea") == []


def test_what_calls_cost(engine: str) -> None:
    """Statements of each call, without those of a transaction."""
    store = MemoryStore()
    store.put(HOME, "k", {"text": "tea"})
    near = MemoryStore(embed=embed)
    costs = {
        "put with a vector": (
            lambda: near.put(HOME, "new", {"text": "tea"}),
            1 if engine == "postgresql" else 5,
        ),
        "put": (lambda: store.put(HOME, "k", {"text": "tea"}), 1 if engine == "postgresql" else 4),
        "get": (lambda: store.get(HOME, "k"), 1),
        "delete": (lambda: store.delete(HOME, "other"), 1 if engine == "postgresql" else 3),
        "search": (lambda: store.search(HOME, query="tea", filter={"text": "tea"}), 1),
        "list_namespaces": (lambda: store.list_namespaces(), 1),
        "batch of 50 gets": (
            lambda: store.batch([{"op": "get", "namespace": HOME, "key": f"{n}"} for n in range(50)]),
            1,
        ),
    }
    for name, (call, expected) in costs.items():
        with CaptureQueriesContext(connection) as caught:
            call()
        assert len(caught) == expected, (name, [query["sql"][:100] for query in caught])


def test_a_prefix_is_a_range_of_the_index(engine: str) -> None:
    store = MemoryStore()
    store.batch(
        [
            {"op": "put", "namespace": ("users", f"{n:04}"), "key": "k", "value": {"text": f"tea number{n}"}}
            for n in range(3000)
        ]
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE helix_sessions_memory" if engine == "postgresql" else "ANALYZE")
    for index, search in (
        ("helix_memory_namespace_idx", lambda: store.search(("users", "0007"))),
        ("helix_memory_words", lambda: store.search((), query="number1234")),
        ("helix_memory_namespace_idx", lambda: store.list_namespaces(prefix=("users", "0007"))),
    ):
        with CaptureQueriesContext(connection) as caught:
            search()
        [query] = caught
        with connection.cursor() as cursor:
            explain = "EXPLAIN" if engine == "postgresql" else "EXPLAIN QUERY PLAN"
            if engine == "postgresql":
                cursor.execute("SET enable_seqscan = off")  # so few rows are read as quickly
            cursor.execute(f"{explain} {query['sql'].replace('%', '%%')}")
            plan = " ".join(str(row) for row in cursor.fetchall())
            if engine == "postgresql":
                cursor.execute("RESET enable_seqscan")
        wanted = (
            index
            if engine == "postgresql"
            else index.replace("helix_memory_words", "helix_sessions_memory_words")
        )
        assert wanted in plan, plan
