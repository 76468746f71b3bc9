"""The statements of memories that are alike on every database; `databases.py` has the others."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from helix_sessions.models import Memory, MemoryVector
from helix_sessions.store.engine.dialect import Dialect
from helix_sessions.store.engine.tables import insert_sql, table

MEMORIES = table(Memory).name
VECTORS = table(MemoryVector).name

WRITTEN = (
    *("memory_id", "namespace", "key", "value", "searchable", "dims"),
    *("ttl", "created_at", "updated_at", "expires_at"),
)
READ = ("memory_id", "namespace", "key", "value", "created_at", "updated_at", "expires_at", "ttl")
VECTOR = ("memory_id", "number", "vector", "sealed")

ALIVE = '(m."expires_at" IS NULL OR m."expires_at" > %s)'
"""What has expired is not there, whether it was removed or not."""

WITHIN = 'm."namespace" >= %s AND m."namespace" < %s'
NEWEST_FIRST = 'm."updated_at" DESC, m."namespace", m."key"'


@lru_cache(maxsize=64)
def put(rows: int) -> str:
    """Write so many memories. One that has expired is a new one."""
    changes = ", ".join(
        f'"{name}" = excluded."{name}"'
        for name in WRITTEN
        if name not in ("memory_id", "namespace", "key", "created_at")
    )
    return (
        f"{insert_sql(Memory, WRITTEN, rows)} ON CONFLICT (memory_id) DO UPDATE SET {changes},"
        f' "created_at" = CASE WHEN {MEMORIES}."expires_at" <= excluded."updated_at"'
        f' THEN excluded."created_at" ELSE {MEMORIES}."created_at" END'
    )


@lru_cache(maxsize=1)
def put_over_bare() -> str:
    """Write a memory unless one with vectors is there."""
    return f'{put(1)} WHERE {MEMORIES}."dims" = 0'


@lru_cache(maxsize=64)
def put_new(vectors: int) -> str:
    """Write a memory that is not there, with so many vectors; without one if it is there. On PostgreSQL."""
    numbered = ", ".join(["(%s::bigint, %s::real[], %s::text)"] * vectors)
    return (
        f"WITH put AS ({insert_sql(Memory, WRITTEN, 1, skipping=True)} RETURNING memory_id)"  # noqa: S608
        f" INSERT INTO {VECTORS} ({', '.join(VECTOR)})"
        f" SELECT put.memory_id, v.* FROM put CROSS JOIN (VALUES {numbered}) v"
    )


def vectors(rows: int) -> str:
    return insert_sql(MemoryVector, VECTOR, rows)


OVER_VECTORS = (
    "ON CONFLICT (memory_id, number) DO UPDATE SET vector = excluded.vector, sealed = excluded.sealed"
)

SEALS_OF_VECTORS = f"SELECT vector IS NULL, sealed FROM {VECTORS} WHERE memory_id = %s"  # noqa: S608


def vectors_of(dialect: Dialect, ids: Sequence[str]) -> tuple[str, Any]:
    """The vectors of memories, and the parameter that says of which."""
    condition, which = dialect.among("memory_id", ids)
    text = (
        f"SELECT memory_id, number, vector, sealed FROM {VECTORS}"  # noqa: S608
        f" WHERE {condition} ORDER BY memory_id, number"
    )
    return text, which


# Reads by key


@lru_cache(maxsize=64)
def selection(dialect: Dialect, score: str = "NULL", more: tuple[str, ...] = ()) -> str:
    """The beginning of a statement that reads memories of `m`."""
    return f"SELECT {table(Memory).selection(dialect, (*READ, *more), 'm.')}, {score} AS score"


def those(dialect: Dialect, ids: Sequence[str]) -> tuple[str, Any]:
    """Memories by their ids, and the parameter that says which."""
    condition, which = dialect.among('m."memory_id"', ids)
    return f"{selection(dialect)} FROM {MEMORIES} m WHERE {condition} AND {ALIVE}", which


def page(dialect: Dialect, *, within: bool) -> str:
    """Memories with their words, in the order of their ids, from behind one on."""
    bounds = f" AND {WITHIN}" if within else ""
    return (
        f"{selection(dialect, more=('searchable',))} FROM {MEMORIES} m"
        f' WHERE m."memory_id" > %s AND {ALIVE}{bounds} ORDER BY m."memory_id" LIMIT %s'
    )


def page_of_columns(dialect: Dialect, columns: tuple[str, ...]) -> str:
    """Columns of all memories, expired ones too, in the order of their ids, from behind one on."""
    return (
        f"SELECT {table(Memory).selection(dialect, columns)} FROM {MEMORIES}"  # noqa: S608
        " WHERE memory_id > %s ORDER BY memory_id LIMIT %s"
    )


def change_content(dialect: Dialect) -> str:
    """Write the content of a memory that has still the value it was read with."""
    return (
        f"UPDATE {MEMORIES} SET value = %s, searchable = %s"  # noqa: S608
        f" WHERE memory_id = %s AND {table(Memory).selection(dialect, ('value',))} = %s"
    )


# Searches


def newest(dialect: Dialect, condition: str) -> str:
    """The memories that fit, the newest first."""
    return (
        f"{selection(dialect)} FROM {MEMORIES} m WHERE {condition} ORDER BY {NEWEST_FIRST} LIMIT %s OFFSET %s"
    )


def newest_with_words(dialect: Dialect, condition: str) -> str:
    """The same with their words, without an offset."""
    return (
        f"{selection(dialect, more=('searchable',))} FROM {MEMORIES} m WHERE {condition}"
        f" ORDER BY {NEWEST_FIRST} LIMIT %s"
    )


def best(dialect: Dialect, score: str, source: str, condition: str) -> str:
    """The memories of a source that fit, by their score."""
    return (
        f"{selection(dialect, score)} FROM {source} WHERE {condition}"
        f" ORDER BY score DESC, {NEWEST_FIRST} LIMIT %s OFFSET %s"
    )


_WITH_VECTORS = f"{MEMORIES} m JOIN {VECTORS} v ON v.memory_id = m.memory_id"


def nearest(dialect: Dialect, nearness: str, condition: str) -> str:
    """The memories with as many dimensions that fit, by the nearest of their vectors."""
    return best(
        dialect, f"max({nearness})", _WITH_VECTORS, f"m.dims = %s AND {condition} GROUP BY m.memory_id"
    )


def vectors_to_compare(condition: str) -> str:
    """The vectors with as many dimensions of the memories that fit."""
    return (
        f"SELECT m.memory_id, m.updated_at, v.vector FROM {_WITH_VECTORS}"  # noqa: S608
        f" WHERE m.dims = %s AND {condition} LIMIT %s"
    )


@lru_cache(maxsize=64)
def namespaces(bounded: bool) -> str:
    """Namespaces in their order, each once, from a text on. Every step is one look into the index, so it does
    not matter how many memories a namespace has."""
    until = ' AND m."namespace" < %s' if bounded else ""

    def first(condition: str) -> str:
        return (
            f'SELECT m."namespace" FROM {MEMORIES} m WHERE m."namespace" {condition}{until}'  # noqa: S608
            f' AND {ALIVE} ORDER BY m."namespace" LIMIT 1'
        )

    return (
        f"WITH RECURSIVE found(namespace) AS (SELECT * FROM ({first('>= %s')}) AS f"  # noqa: S608
        f" UNION ALL SELECT ({first('> found.namespace')}) FROM found WHERE found.namespace IS NOT NULL)"
        " SELECT namespace FROM found WHERE namespace IS NOT NULL LIMIT %s"
    )
