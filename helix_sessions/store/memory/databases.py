"""What differs between the databases: how memories are put, found by words, filtered and compared."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.models import Memory
from helix_sessions.store.engine.connection import execute, fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.postgres import milliseconds
from helix_sessions.store.engine.tables import table
from helix_sessions.store.memory import filters, sql, vectors
from helix_sessions.store.memory.filters import Condition
from helix_sessions.store.memory.vectors import Vector


class Ranking(NamedTuple):
    """How memories are found by words and ordered: parts of a SELECT with their parameters."""

    source: str
    score: str
    score_params: list[Any]
    condition: str
    params: list[Any]


class Clause(NamedTuple):
    """A condition with its parameters."""

    text: str
    params: list[Any]


class Postgres:
    """`tsvector`, `jsonb` and, where the extension is there, pgvector."""

    puts_at_once = True
    """Whether memories without vectors, and new ones with some, are put by one statement, whole or not at
    all."""

    def put(self, connection: BaseDatabaseWrapper, rows: list[list[Any]], bare: list[str]) -> None:
        """Write memories, and remove the vectors of those that have none now."""
        encode = table(Memory).encoder(dialect_of(connection), sql.WRITTEN)
        params = [value for row in rows for value in encode(row)]
        if len(rows) == len(bare) == 1:  # mostly it is new, or had no vectors: then nothing has to be removed
            text = _waiting(sql.put_over_bare())
            if execute(connection, text, [milliseconds(conf.LOCK_TIMEOUT), *params]):
                return
        stale = f"WITH stale AS (DELETE FROM {sql.VECTORS} WHERE memory_id = ANY(%s::text[]))"  # noqa: S608
        execute(
            connection,
            f"{stale} {_waiting(sql.put(len(rows)))}",
            [bare, milliseconds(conf.LOCK_TIMEOUT), *params],
            prepare=len(rows) == 1,
        )

    def put_new(
        self, connection: BaseDatabaseWrapper, row: list[Any], vectors: Sequence[Sequence[Any]]
    ) -> bool:
        """Write a memory with its vectors, if there was none; whether there was none."""
        encode = table(Memory).encoder(dialect_of(connection), sql.WRITTEN)
        params = [*encode(row), *(value for vector in vectors for value in vector)]
        text = _waiting(sql.put_new(len(vectors)))
        prepare = len(vectors) == 1
        return bool(execute(connection, text, [milliseconds(conf.LOCK_TIMEOUT), *params], prepare=prepare))

    def put_vectors(
        self, connection: BaseDatabaseWrapper, rows: list[list[Any]], counts: dict[str, int]
    ) -> None:
        """Write vectors over those that are there, and remove those beyond the new count of a memory."""
        stale = (
            f"WITH stale AS (DELETE FROM {sql.VECTORS} v USING unnest(%s::text[], %s::int[])"  # noqa: S608
            " AS kept (memory_id, number) WHERE v.memory_id = kept.memory_id AND v.number >= kept.number)"
        )
        params = [value for row in rows for value in row]
        if counts:
            params = [list(counts), list(counts.values()), *params]
        text = f"{sql.vectors(len(rows))} {sql.OVER_VECTORS}"
        execute(connection, f"{stale} {text}" if counts else text, params, prepare=len(rows) == 1)

    def vector(self, vector: Vector) -> str:
        """A vector as a parameter."""
        return f"{{{','.join(map(repr, vector))}}}"

    def ranking(self, words: list[str]) -> Ranking:
        query = "plainto_tsquery('pg_catalog.simple', %s)"
        text = " ".join(words)
        return Ranking(
            f"{sql.MEMORIES} m", f"ts_rank(m.words, {query}, 1)", [text], f"m.words @@ {query}", [text]
        )

    def condition(self, connection: BaseDatabaseWrapper, conditions: tuple[Condition, ...]) -> Clause:
        parts, params = [], list[Any]()
        for key, operator, operand in conditions:
            found = f"({_FACTS} -> %s::text)"
            sign = filters.OPERATORS[operator]
            if operator in ("$eq", "$ne"):
                parts.append(f"COALESCE({found}, 'null'::jsonb) {sign} %s::jsonb")
                params += [_plain(key), documents.write(_plain(operand))]
            elif isinstance(operand, str):
                is_text = f"jsonb_typeof({found}) = 'string'"
                parts.append(f"({is_text} AND ({found} #>> '{{}}') COLLATE \"C\" {sign} %s::text)")
                params += [_plain(key), _plain(key), _plain(operand)]
            else:
                parts.append(f"(jsonb_typeof({found}) = 'number' AND {found} {sign} %s::jsonb)")
                params += [_plain(key), _plain(key), documents.write(operand)]
        return Clause(" AND ".join(parts), params)

    def nearness(self, connection: BaseDatabaseWrapper, vector: Vector) -> Clause | None:
        """How near the vectors `v` are to one; `None` if the database cannot tell."""
        schema = _schema_of_pgvector(connection)
        if schema is None:
            return None
        kind = f"{schema}.vector"
        score = f"-(v.vector::{kind} OPERATOR({schema}.<#>) %s::{kind})"
        return Clause(score, [f"[{','.join(map(repr, vector))}]"])

    def remove(self, connection: BaseDatabaseWrapper, ids: list[str]) -> int:
        """Delete memories; how many there were."""
        return execute(
            connection,
            f"DELETE FROM {sql.MEMORIES} WHERE memory_id = ANY(%s::text[])"  # noqa: S608
            " AND set_config('lock_timeout', %s, true) IS NOT NULL",
            [ids, milliseconds(conf.LOCK_TIMEOUT)],
        )

    def remove_expired(self, connection: BaseDatabaseWrapper, now: Any, limit: int) -> int:
        """Delete so many memories whose time is over, but those that are being written; how many."""
        return execute(
            connection,
            f"DELETE FROM {sql.MEMORIES} WHERE memory_id IN (SELECT memory_id FROM {sql.MEMORIES}"  # noqa: S608
            " WHERE expires_at <= %s ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED)",
            [now, limit],
        )

    def touch(self, connection: BaseDatabaseWrapper, ids: Sequence[str], params: list[Any]) -> None:
        """Set `expires_at` of memories that are there. Those that are being written are left alone."""
        execute(
            connection,
            f"UPDATE {sql.MEMORIES} SET expires_at = %s WHERE memory_id IN"  # noqa: S608
            f" (SELECT memory_id FROM {sql.MEMORIES} WHERE memory_id = ANY(%s::text[]) AND expires_at > %s"
            " FOR UPDATE SKIP LOCKED)",
            [params[0], list(ids), params[1]],
        )


def _waiting(text: str) -> str:
    """An INSERT that waits for locks as long as its first parameter says."""
    timed = "(CASE WHEN set_config('lock_timeout', %s, true) IS NOT NULL THEN %s END"
    return text.replace("VALUES (%s", f"VALUES {timed}", 1)


class Sqlite:
    """FTS5, and functions of ours."""

    puts_at_once = False

    def put(self, connection: BaseDatabaseWrapper, rows: list[list[Any]], bare: list[str]) -> None:
        encode = table(Memory).encoder(dialect_of(connection), sql.WRITTEN)
        for row in rows:
            execute(connection, sql.put(1), encode(row))
        self._remove_vectors(connection, bare)

    def put_new(
        self, connection: BaseDatabaseWrapper, row: list[Any], vectors: Sequence[Sequence[Any]]
    ) -> bool:
        return False

    def put_vectors(
        self, connection: BaseDatabaseWrapper, rows: list[list[Any]], counts: dict[str, int]
    ) -> None:
        self._remove_vectors(connection, list(counts))
        execute(connection, sql.vectors(len(rows)), [value for row in rows for value in row])

    def _remove_vectors(self, connection: BaseDatabaseWrapper, ids: list[str]) -> None:
        if ids:
            condition, which = dialect_of(connection).among("memory_id", ids)
            execute(connection, f"DELETE FROM {sql.VECTORS} WHERE {condition}", [which])  # noqa: S608

    def vector(self, vector: Vector) -> bytes:
        return vectors.packed(vector)

    def ranking(self, words: list[str]) -> Ranking:
        index = "helix_sessions_memory_words"
        quoted = " AND ".join(f'"{word}"' for word in words)
        return Ranking(
            f"{index} JOIN {sql.MEMORIES} m ON m.memory_id = {index}.memory_id",
            f"-bm25({index}, 0.0, 1.0)",
            [],
            f"{index} MATCH %s",
            [f"searchable : ({quoted})"],
        )

    def condition(self, connection: BaseDatabaseWrapper, conditions: tuple[Condition, ...]) -> Clause:
        connection.ensure_connection()
        connection.connection.create_function(
            "helix_memory_fits", 2, filters.holds_written, deterministic=True
        )
        return Clause('helix_memory_fits(%s, m."value")', [filters.written(conditions)])

    def nearness(self, connection: BaseDatabaseWrapper, vector: Vector) -> Clause | None:
        return None

    def remove(self, connection: BaseDatabaseWrapper, ids: list[str]) -> int:
        condition, which = dialect_of(connection).among("memory_id", ids)
        return execute(connection, f"DELETE FROM {sql.MEMORIES} WHERE {condition}", [which])  # noqa: S608

    def remove_expired(self, connection: BaseDatabaseWrapper, now: Any, limit: int) -> int:
        return execute(
            connection,
            f"DELETE FROM {sql.MEMORIES} WHERE memory_id IN (SELECT memory_id FROM {sql.MEMORIES}"  # noqa: S608
            " WHERE expires_at <= %s ORDER BY expires_at LIMIT %s)",
            [now, limit],
        )

    def touch(self, connection: BaseDatabaseWrapper, ids: Sequence[str], params: list[Any]) -> None:
        condition, which = dialect_of(connection).among("memory_id", ids)
        execute(
            connection,
            f"UPDATE {sql.MEMORIES} SET expires_at = %s WHERE {condition} AND expires_at > %s",  # noqa: S608
            [params[0], which, params[1]],
        )


Database = Postgres | Sqlite


def database_of(connection: BaseDatabaseWrapper) -> Database:
    """The one that is asked."""
    return Postgres() if dialect_of(connection).name == "postgresql" else Sqlite()


_FACTS = (
    "(CASE WHEN strpos(m.value::text, '\\u0000') = 0 THEN m.value::text ELSE regexp_replace(m.value::text,"
    " '(?<!\\\\)((?:\\\\\\\\)*)\\\\u0000', '\\1\\\\uFFFE', 'g') END)::jsonb"
)
"""The value, to be asked for its keys. `jsonb` takes no null characters: they count as U+FFFE."""


def _plain(value: Any) -> Any:
    """A part of a filter in which null characters are as in `_FACTS`."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffe")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return value


_PGVECTOR = "_helix_sessions_pgvector"


def _schema_of_pgvector(connection: BaseDatabaseWrapper) -> str | None:
    """Where the extension is; `None` without it. Looked up once for each connection."""
    own = vars(connection)
    if _PGVECTOR not in own:
        found = fetch(
            connection,
            "SELECT quote_ident(n.nspname) FROM pg_catalog.pg_extension e"
            " JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'",
            [],
            prepare=False,
        )
        own[_PGVECTOR] = found[0][0] if found else None
    name: str | None = own[_PGVECTOR]
    return name
