"""What LangGraph's store tests get for a store: `DjangoStore` on an empty database."""

# ruff: noqa: E402 - Django first

import asyncio
import math
import os
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import django
import pytest

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.core.management import call_command
from langchain_core.embeddings import Embeddings
from langgraph.store.base import Op, Result
from langgraph.store.base.batch import AsyncBatchedBaseStore

from helix_sessions.integrations.langgraph import DjangoStore
from helix_sessions.models import Memory

call_command("migrate", verbosity=0)

_threads = ThreadPoolExecutor(4)
TTL = {"default_ttl": 0.1, "refresh_on_read": True}
LONG_TTL = {**TTL, "default_ttl": 10}
"""For tests that put hundreds of memories, on a machine that may be slow."""


class PeerStore(DjangoStore):
    """`DjangoStore`, with synchronous calls in a thread where an event loop runs: the peers' tests make them
    there, and Django refuses them."""

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return super().batch(ops)
        return _threads.submit(super().batch, list(ops)).result()

    @classmethod
    def empty(cls, **options: Any) -> "PeerStore":
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            Memory.objects.all().delete()
        else:
            _threads.submit(Memory.objects.all().delete).result()
        index = options.get("index")
        if index is not None:
            fields = index.get("fields") or index.get("text_fields")
            options["index"] = {**index, "fields": fields, "text_fields": fields}
        return cls(**options)


class Batched(AsyncBatchedBaseStore):
    """LangGraph's way to gather concurrent calls, over ours."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._store = PeerStore.empty(**options)

        self.index_config = self._store.index_config
        self.supports_ttl, self.ttl_config = True, self._store.ttl_config

    async def start_ttl_sweeper(self) -> None:
        """There is none: what has expired is never returned."""

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return self._store.batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await self._store.abatch(ops)


class CharacterEmbeddings(Embeddings):
    """Texts with the same characters are near each other."""

    def __init__(self, dims: int = 50, seed: int = 42) -> None:
        self._random = random.Random(seed)
        self.dims = dims
        self._directions: dict[str, list[float]] = defaultdict(
            lambda: [self._random.gauss(0, 1 / math.sqrt(self.dims)) for _ in range(self.dims)]
        )

    def embed_query(self, text: str) -> list[float]:
        counts = Counter(text)
        total = sum(counts.values()) or 1
        found = [0.0] * self.dims
        for character, count in counts.items():
            for place, number in enumerate(self._directions[character]):
                found[place] += count / total * number
        length = math.sqrt(sum(number * number for number in found)) or 1.0
        return [number / length for number in found]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CharacterEmbeddings) and self.dims == other.dims

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture
def fake_embeddings() -> CharacterEmbeddings:
    return CharacterEmbeddings(dims=500)


@pytest.fixture(params=["default"])
def store() -> PeerStore:
    return PeerStore.empty(ttl=TTL)


def _index(given: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    embeddings = next(each for each in (*given, *options.values()) if isinstance(each, CharacterEmbeddings))
    fields = options.get("text_fields")
    if fields is None:
        fields = next((each for each in given if isinstance(each, list)), None)
    return {"dims": embeddings.dims, "embed": embeddings, "fields": fields}


@contextmanager
def create_vector_store(*given: Any, **options: Any) -> Iterator[PeerStore]:
    ttl = LONG_TTL if options.get("enable_ttl", True) else None
    yield PeerStore.empty(index=_index(given, options), ttl=ttl)


@pytest.fixture(params=[("vector", "cosine")])
def vector_store(fake_embeddings: CharacterEmbeddings) -> Iterator[PeerStore]:
    with create_vector_store(fake_embeddings) as made:
        yield made


@asynccontextmanager
async def acreate_vector_store(*given: Any, **options: Any) -> AsyncIterator[Batched]:
    yield Batched(index=_index(given, options), ttl=LONG_TTL)


@pytest.fixture(params=["default"])
async def astore() -> Batched:
    return Batched(ttl=TTL)


@pytest.fixture(params=[("vector", "cosine")])
async def avector_store(fake_embeddings: CharacterEmbeddings) -> AsyncIterator[Batched]:
    async with acreate_vector_store(fake_embeddings) as made:
        yield made


@pytest.fixture(params=["memory"])
def conn_string() -> str:
    return ":memory:"


_both = {
    "fake_embeddings": fake_embeddings,
    "CharacterEmbeddings": CharacterEmbeddings,
    "InMemoryStore": PeerStore.empty,
    "MockAsyncBatchedStore": Batched,
    "conn_string": conn_string,
    "VECTOR_TYPES": ["vector"],
    "DEFAULT_URI": "",
}
stores = SimpleNamespace(
    **_both,
    store=store,
    vector_store=vector_store,
    create_vector_store=create_vector_store,
    _create_vector_store=create_vector_store,
)
astores = SimpleNamespace(
    **_both,
    store=astore,
    vector_store=avector_store,
    create_vector_store=acreate_vector_store,
    _create_vector_store=acreate_vector_store,
)
