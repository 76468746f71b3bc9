"""The operations of the memory store. Every call is a batch, so that each rule has one place."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import groupby
from typing import Any, Literal

from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.store.engine.connection import connect, errors_translated, is_between_transactions
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.memory import operations, rows, searches, vectors
from helix_sessions.store.memory.databases import database_of
from helix_sessions.store.memory.operations import Delete, Get, ListNamespaces, Operation, Put, Search
from helix_sessions.store.memory.scope import MemoryScope
from helix_sessions.store.memory.vectors import Vector
from helix_sessions.types import JSON, Memory


def put(
    store: MemoryScope,
    namespace: Sequence[str],
    key: str,
    value: Mapping[str, JSON],
    *,
    ttl: float | None = None,
    index: Literal[False] | Sequence[str] | None = None,
) -> None:
    """Keep a document under a key of a namespace, in the place of the one before.

    After `ttl` seconds it is gone; without, it stays. `index` says what a search finds it by: all texts
    of the value, with `False` none, or those under some of its keys.
    """
    run(store, [operations.put(namespace, key, value, ttl=ttl, index=index)])


def get(store: MemoryScope, namespace: Sequence[str], key: str) -> Memory | None:
    """The memory under a key of a namespace; `None` if there is none."""
    [found] = run(store, [operations.get(namespace, key)])
    return found  # type: ignore[no-any-return]


def delete(store: MemoryScope, namespace: Sequence[str], key: str) -> None:
    """Forget the memory under a key of a namespace, if there is one."""
    run(store, [operations.delete(namespace, key)])


def search(
    store: MemoryScope,
    prefix: Sequence[str],
    *,
    query: str | None = None,
    filter: Mapping[str, JSON] | None = None,
    limit: int = 10,
    offset: int = 0,
) -> list[Memory]:
    """The memories of all namespaces that begin with `prefix`.

    With a `query` those that have every word of it, best first; where the store has an embedder, the
    nearest ones. Without, the newest first. `filter` has conditions on keys of the value: what it must
    equal, or `{"$gt": 5}` and the like.
    """
    [found] = run(store, [operations.search(prefix, query=query, filter=filter, limit=limit, offset=offset)])
    return found  # type: ignore[no-any-return]


def list_namespaces(
    store: MemoryScope,
    *,
    prefix: Sequence[str] | None = None,
    suffix: Sequence[str] | None = None,
    max_depth: int | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[tuple[str, ...]]:
    """The namespaces that hold memories, sorted. `"*"` in `prefix` or `suffix` stands for any one part;
    `max_depth` cuts them to their first parts."""
    [found] = run(
        store,
        [
            operations.list_namespaces(
                prefix=prefix, suffix=suffix, max_depth=max_depth, limit=limit, offset=offset
            )
        ],
    )
    return found  # type: ignore[no-any-return]


def batch(store: MemoryScope, operations: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Do several things in order, in one transaction; the answer of each, in order.

    An operation is an object with the name of a call as `op`, and its arguments.
    """
    return run(store, _of_batch(operations))


_of_batch = operations.of_batch


def run(store: MemoryScope, wanted: Sequence[Operation]) -> list[Any]:
    """Check, embed, apply: the embedder is done before a transaction begins."""
    refuse_foreign(store, wanted)
    embed = vectors.embedder(store._embed)
    found = vectors.embedded(embed, operations.texts_to_embed(wanted))
    return apply(store, wanted, found if embed is not None else None)


def refuse_foreign(store: MemoryScope, wanted: Iterable[Operation]) -> None:
    """Raise `ForeignNamespace` if something is to be put where this store may not."""
    for one in wanted:
        if isinstance(one, Put):
            store._refuse_foreign(one.namespace)


def apply(store: MemoryScope, wanted: Sequence[Operation], found: list[Vector] | None) -> list[Any]:
    """The answers of checked operations. `found` are the vectors of their texts, `None` without embedder."""
    now = timezone.now()
    if found and _put_new(store, wanted, found, now):
        return [None]
    given = None if found is None else iter(found)
    groups = [list(group) for _, group in groupby(wanted, _kind)]
    answers: list[Any] = []
    with _transaction(store, groups, bool(found)) as connection:
        for group in groups:
            answers.extend(_DO[_kind(group[0])](store, connection, group, given, now))
    return answers


def _put_new(store: MemoryScope, wanted: Sequence[Operation], found: list[Vector], now: datetime) -> bool:
    """Whether to put one memory with vectors was all, and it was not there: one statement has done it."""
    [one] = wanted if len(wanted) == 1 else [None]
    if not isinstance(one, Put):
        return False
    connection = store._connection
    connect(connection)
    if not (database_of(connection).puts_at_once and is_between_transactions(connection)):
        return False
    with _Alone(connection):
        return rows.write_new(connection, rows.of_put(one, found, now))


def _kind(one: Operation) -> str:
    """Neighbours of one kind are done together."""
    return {Put: "write", Delete: "write", Get: "get", Search: "search"}.get(type(one), "list")


def _transaction(
    store: MemoryScope, groups: list[list[Operation]], has_vectors: bool
) -> AbstractContextManager[BaseDatabaseWrapper]:
    connection = store._connection
    connect(connection)
    kinds = [_kind(group[0]) for group in groups]
    if len(groups) <= 1 and "write" not in kinds:
        return _Alone(connection)
    single = kinds == ["write"] and len(groups[0]) == 1 and not has_vectors
    if single and database_of(connection).puts_at_once and is_between_transactions(connection):
        return _Alone(connection)
    return locking_transaction(store.using)


class _Alone:
    """One statement, which needs no transaction around it."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._translated = errors_translated(connection)

    def __enter__(self) -> BaseDatabaseWrapper:
        self._translated.__enter__()
        return self._connection

    def __exit__(self, *error: Any) -> None:
        self._translated.__exit__(*error)


def _write(
    store: MemoryScope,
    connection: BaseDatabaseWrapper,
    group: list[Any],
    given: Iterator[Vector] | None,
    now: datetime,
) -> list[None]:
    """Puts and deletions; of several of one key the last one counts. A put behind a deletion is new."""
    last: dict[str, rows.Written | None] = {}
    gone: set[str] = set()
    for one in group:
        if isinstance(one, Put):
            found = [] if given is None else [next(given) for _ in one.texts]
            last[one.memory_id] = rows.of_put(one, found, now)
        elif store._reaches(one.namespace):
            last[one.memory_id] = None
            gone.add(one.memory_id)
    if gone:
        rows.remove(connection, list(gone))
    rows.write(connection, [memory for memory in last.values() if memory is not None])
    return [None] * len(group)


def _get(
    store: MemoryScope, connection: BaseDatabaseWrapper, group: list[Get], given: Any, now: datetime
) -> list[Memory | None]:
    ids = [one.memory_id for one in group if store._reaches(one.namespace)]
    there = rows.read(connection, ids, now) if ids else {}
    refreshed = [there[one.memory_id] for one in group if one.refresh and one.memory_id in there]
    rows.touch(connection, refreshed, now)
    return [rows.value_of(there[one.memory_id]) if one.memory_id in there else None for one in group]


def _search(
    store: MemoryScope,
    connection: BaseDatabaseWrapper,
    group: list[Search],
    given: Iterator[Vector] | None,
    now: datetime,
) -> list[list[Memory]]:
    answers = []
    for one in group:
        vector = None if given is None or one.query is None else next(given)
        prefix = store._narrowed(one.prefix)
        found = []
        if prefix is not None and one.limit:
            found = searches.found(connection, one._replace(prefix=prefix), vector, now)
        if one.refresh:
            rows.touch(connection, found, now)
        answers.append([rows.value_of(row) for row in found])
    return answers


def _list(
    store: MemoryScope,
    connection: BaseDatabaseWrapper,
    group: list[ListNamespaces],
    given: Any,
    now: datetime,
) -> list[list[tuple[str, ...]]]:
    return [searches.namespaces(connection, one, now, store._home) for one in group]


_DO: dict[str, Callable[..., list[Any]]] = {"write": _write, "get": _get, "search": _search, "list": _list}
