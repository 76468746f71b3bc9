"""Memories as rows: written, read, removed. Content is sealed on its way in and opened on its way out."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents, encryption
from helix_sessions.messages import words
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.tables import aware
from helix_sessions.store.memory import names, sql, vectors
from helix_sessions.store.memory.databases import database_of
from helix_sessions.store.memory.operations import Put
from helix_sessions.store.memory.vectors import Vector
from helix_sessions.types import Memory

_ROWS_AT_ONCE = 200
_VECTORS_AT_ONCE = 50


class Written(NamedTuple):
    """A memory as it is to be stored."""

    memory_id: str
    namespace: str
    key: str
    value: str
    searchable: str
    ttl: float | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    vectors: Sequence[Vector] = ()


def of_put(put: Put, found: Sequence[Vector], now: datetime) -> Written:
    """What a put writes."""
    return Written(
        put.memory_id,
        names.stored(put.namespace),
        put.key,
        put.value,
        words.searchable(put.texts),
        put.ttl,
        now,
        now,
        None if put.ttl is None else now + timedelta(seconds=put.ttl),
        found[: vectors.MAX_PER_MEMORY],
    )


def write(connection: BaseDatabaseWrapper, memories: Iterable[Written]) -> None:
    """Put memories, each key once, in the order of ids, so that two writers cannot wait for each other."""
    ordered = sorted(memories, key=lambda memory: memory.memory_id)
    for start in range(0, len(ordered), _ROWS_AT_ONCE):
        page = ordered[start : start + _ROWS_AT_ONCE]
        rows = [_columns(memory) for memory in page]
        bare = [memory.memory_id for memory in page if not memory.vectors]
        database_of(connection).put(connection, rows, bare)
        write_vectors(connection, [(memory.memory_id, memory.vectors) for memory in page])


def write_new(connection: BaseDatabaseWrapper, memory: Written) -> bool:
    """Put a memory that is not there by one statement; whether it was not. A writer that meets it waits for
    it and finds it there, so it leaves no vectors of another."""
    if len(memory.vectors) > _VECTORS_AT_ONCE:
        return False
    found = [
        [number, *_stored_vector(connection, memory.memory_id, number, vector)]
        for number, vector in enumerate(memory.vectors)
    ]
    return database_of(connection).put_new(connection, _columns(memory), found)


def _columns(memory: Written) -> list[Any]:
    sealed = encryption.seal_text(place(memory.memory_id, "searchable"), memory.searchable)
    return [
        *(memory.memory_id, memory.namespace, memory.key, memory.value),
        sealed if memory.searchable else "",
        len(memory.vectors[0]) if memory.vectors else 0,
        *(memory.ttl, memory.created_at, memory.updated_at, memory.expires_at),
    ]


def write_vectors(connection: BaseDatabaseWrapper, found: Sequence[tuple[str, Sequence[Vector]]]) -> None:
    """Give memories these vectors instead of those they have. Their rows are locked by a statement before, so
    that this one sees what the writer before has left."""
    counts = {memory_id: len(several) for memory_id, several in found if several}
    rows = [
        [memory_id, number, *_stored_vector(connection, memory_id, number, vector)]
        for memory_id, several in found
        for number, vector in enumerate(several)
    ]
    for start in range(0, len(rows), _VECTORS_AT_ONCE):
        page = rows[start : start + _VECTORS_AT_ONCE]
        database_of(connection).put_vectors(connection, page, {} if start else counts)


def _stored_vector(
    connection: BaseDatabaseWrapper, memory_id: str, number: int, vector: Vector
) -> tuple[Any, str | None]:
    """A vector tells what its text is about, so it is sealed with it."""
    ring = encryption.keyring()
    if ring is None or ring.active is None:
        return database_of(connection).vector(vector), None
    return None, ring.seal(vector_place(memory_id, number), documents.write(list(vector)))


def remove(connection: BaseDatabaseWrapper, ids: Sequence[str]) -> int:
    """Delete memories, with their words and vectors; how many there were."""
    return database_of(connection).remove(connection, sorted(ids))


def read(connection: BaseDatabaseWrapper, ids: Sequence[str], now: datetime) -> dict[str, list[Any]]:
    """The rows of those that are there, by id."""
    text, which = sql.those(dialect_of(connection), ids)
    return {row[0]: list(row) for row in fetch(connection, text, [which, moment(connection, now)])}


def value_of(row: Sequence[Any]) -> Memory:
    """The memory of a row of `sql.READ` and a score."""
    memory_id, namespace, key, text, created_at, updated_at, expires_at, _, score = row
    opened = encryption.open_text(place(memory_id, "value"), text)
    return Memory(
        namespace=names.parts_of(namespace),
        key=key,
        value=documents.load(opened),
        created_at=aware(created_at),
        updated_at=aware(updated_at),
        expires_at=None if expires_at is None else aware(expires_at),
        score=None if score is None else float(score),
    )


def touch(connection: BaseDatabaseWrapper, rows: Iterable[Sequence[Any]], now: datetime) -> None:
    """Let the time of memories that have one begin anew."""
    by_ttl: dict[float, list[str]] = {}
    for row in rows:
        if row[7] is not None:
            by_ttl.setdefault(row[7], []).append(row[0])
    for ttl, ids in sorted(by_ttl.items()):
        until = moment(connection, now + timedelta(seconds=ttl))
        database_of(connection).touch(connection, ids, [until, moment(connection, now)])


def vectors_of(connection: BaseDatabaseWrapper, ids: Sequence[str]) -> dict[str, list[Vector]]:
    """The vectors of memories, opened."""
    text, which = sql.vectors_of(dialect_of(connection), ids)
    found: dict[str, list[Vector]] = {}
    for memory_id, number, vector, sealed in fetch(connection, text, [which]):
        if sealed is not None:
            vector = documents.load(encryption.open_text(vector_place(memory_id, number), sealed))
        found.setdefault(memory_id, []).append(vectors.unpacked(vector))
    return found


def moment(connection: BaseDatabaseWrapper, value: datetime) -> Any:
    """A time as a parameter."""
    return dialect_of(connection).parameters([value])[0]


def place(memory_id: str, column: str) -> encryption.Place:
    """Where a text of a memory is, for who seals it and who opens it."""
    return ("memory", column, memory_id)


def vector_place(memory_id: str, number: int) -> encryption.Place:
    return ("memoryvector", "vector", memory_id, number)
