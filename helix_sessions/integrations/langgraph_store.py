"""LangGraph's memory across threads: `graph.compile(store=DjangoStore())`, on the rows of `MemoryStore`.

Names, batches and times to live follow LangGraph: labels have no periods, what a batch reads is as it was
before what the batch writes, and a `ttl` is in minutes and begins anew when a memory is read.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async

from helix_sessions.integrations.extras import needed_from
from helix_sessions.memory import MemoryStore
from helix_sessions.store.engine import inputs
from helix_sessions.store.memory import memories, operations, upkeep, vectors
from helix_sessions.store.memory.operations import Operation, Put, Search
from helix_sessions.store.memory.vectors import Vector
from helix_sessions.types import Memory

with needed_from("langgraph"):
    from langgraph.store import base
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        IndexConfig,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        ensure_embeddings,
        get_text_at_path,
    )

_ORDER = {GetOp: 0, SearchOp: 1, ListNamespacesOp: 2, PutOp: 3}
"""In which order a batch is done, regardless of the order of its operations."""

_refuse_labels = getattr(base, "validate_op_namespace", lambda op: None)  # since langgraph-checkpoint 4.3
_WHOLE = ["$"]
_BEYOND = 10**400
"""A number that no float comes near to."""


class DjangoStore(BaseStore):
    """A LangGraph store over a `MemoryStore`.

    With `index` (`{"embed": …, "fields": […]}`) a query finds what is near in meaning, as in LangGraph's own
    stores. Without, `EMBEDDER` does, and without that a query finds the memories that have every word of it.
    What has expired is never returned; `sweep_ttl` and the clean-up jobs remove it.
    """

    supports_ttl = True

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self.memories = MemoryStore() if store is None else store
        self.index_config = index
        self.ttl_config = ttl
        self.embeddings = None if index is None else ensure_embeddings(index.get("embed"))
        self._fields = list((index or {}).get("fields") or _WHOLE)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do several things in one transaction: what is read first, then what is written."""
        given = list(ops)
        wanted, order = self._checked(given)
        found = self._embedded(wanted)
        answers = memories.apply(self.memories, wanted, found)
        return _in_order(given, order, answers)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same, to be awaited."""
        given = list(ops)
        wanted, order = self._checked(given)
        if self.embeddings is None:
            found = await sync_to_async(self._embedded)(wanted)
        else:
            texts, queries = _texts(wanted)
            of_texts = await self.embeddings.aembed_documents(texts) if texts else []
            of_queries = [await self.embeddings.aembed_query(query) for query in queries]
            found = _merged(wanted, of_texts, of_queries)
        answers = await sync_to_async(memories.apply)(self.memories, wanted, found)
        return _in_order(given, order, answers)

    def sweep_ttl(self) -> int:
        """Remove what has expired; how many memories."""
        return upkeep.remove_expired(self.memories.using)

    async def asweep_ttl(self) -> int:
        """The same, to be awaited."""
        return await sync_to_async(self.sweep_ttl)()

    def _checked(self, given: Sequence[Op]) -> tuple[list[Operation], list[int]]:
        """The operations in the order in which they are done, and the place of each in the batch. Of several
        puts of one key the last one counts."""
        for op in given:
            _refuse_labels(op)
        order = sorted(range(len(given)), key=lambda place: _ORDER[type(given[place])])
        wanted = [self._operation(given[place]) for place in order]
        memories.refuse_foreign(self.memories, wanted)
        return wanted, order

    def _operation(self, op: Op) -> Operation:
        if isinstance(op, GetOp):
            return operations.get(op.namespace, op.key, refresh=op.refresh_ttl)
        if isinstance(op, SearchOp):
            return operations.search(
                op.namespace_prefix,
                query=op.query,
                filter=_finite(op.filter),
                limit=op.limit,
                offset=op.offset,
                refresh=op.refresh_ttl,
            )
        if isinstance(op, ListNamespacesOp):
            patterns = {"prefix": list[Any](), "suffix": list[Any]()}
            for condition in op.match_conditions or ():
                patterns[condition.match_type].append(tuple(condition.path))
            listed = partial(operations.listing, patterns["prefix"], patterns["suffix"])
            return listed(max_depth=op.max_depth, limit=op.limit, offset=op.offset)
        if op.value is None:
            return operations.delete(op.namespace, op.key)
        text = inputs.mapping(op.value, "The value of a memory")
        ttl = None if op.ttl is None else op.ttl * 60
        return operations.written(op.namespace, op.key, text, self._texts_of(op), ttl)

    def _texts_of(self, op: PutOp) -> list[str]:
        """What of a value is found, by LangGraph's paths; each has a vector of its own."""
        if op.index is False:
            return []
        paths = self._fields if op.index is None else op.index
        value = dict(op.value or {})
        found = [text for path in paths for text in get_text_at_path(value, path)]
        return [text for text in dict.fromkeys(found) if text.strip()]

    def _embedded(self, wanted: Sequence[Operation]) -> list[Vector] | None:
        """The vectors of all texts, in their order; `None` if words are searched."""
        if self.embeddings is None:
            embed = vectors.embedder(self.memories._embed)
            texts = operations.texts_to_embed(wanted)
            return None if embed is None else vectors.embedded(embed, texts)
        texts, queries = _texts(wanted)
        of_texts = self.embeddings.embed_documents(texts) if texts else []
        return _merged(wanted, of_texts, [self.embeddings.embed_query(query) for query in queries])


def _finite(given: Any) -> Any:
    """A filter whose numbers can be written: what is compared with infinity is compared with a number beyond
    all others, and nothing compares with what is not a number."""
    if not isinstance(given, Mapping):
        return given
    found = {}
    for key, wanted in given.items():
        if isinstance(wanted, Mapping):
            found[key] = dict(_finite_condition(name, operand) for name, operand in wanted.items())
        else:
            found[key] = wanted
    return found


def _finite_condition(operator: str, operand: Any) -> tuple[str, Any]:
    if not isinstance(operand, float) or math.isfinite(operand):
        return operator, operand
    if math.isnan(operand):
        return ("$ne", _BEYOND) if operator == "$ne" else ("$gt", _BEYOND)
    return operator, _BEYOND if operand > 0 else -_BEYOND


def _texts(wanted: Iterable[Operation]) -> tuple[list[str], list[str]]:
    """What is embedded as a document, and what as a query."""
    listed = list(wanted)
    texts = [text for one in listed if isinstance(one, Put) for text in one.texts]
    return texts, [one.query for one in listed if isinstance(one, Search) and one.query is not None]


def _merged(wanted: Iterable[Operation], of_texts: Any, of_queries: Any) -> list[Vector]:
    """The vectors in the order of the operations that need them."""
    texts, queries, merged = iter(of_texts), iter(of_queries), []
    for one in wanted:
        if isinstance(one, Put):
            merged += [next(texts) for _ in one.texts]
        elif isinstance(one, Search) and one.query is not None:
            merged.append(next(queries))
    return vectors.checked(merged, len(merged))


def _in_order(given: Sequence[Op], order: Sequence[int], answers: Sequence[Any]) -> list[Result]:
    """The answers at the places of their operations, as LangGraph's values."""
    found: list[Any] = [None] * len(given)
    for place, answer in zip(order, answers, strict=True):
        op = given[place]
        if isinstance(op, GetOp) and answer is not None:
            answer = Item(**_fields(answer))
        elif isinstance(op, SearchOp):
            answer = [SearchItem(**_fields(memory), score=memory.score) for memory in answer]
        found[place] = answer
    return found


def _fields(memory: Memory) -> dict[str, Any]:
    names = ("namespace", "key", "value", "created_at", "updated_at")
    return {name: getattr(memory, name) for name in names}
