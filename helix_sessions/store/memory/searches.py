"""Searches: by words or by nearness where there is a query, the newest first where there is none.

The database does the work. What it cannot see, sealed content, and what it cannot compare, vectors without
pgvector, is read and judged here, up to a bound; a search that would read more is refused.
"""

from collections.abc import Container, Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents, encryption
from helix_sessions.exceptions import SearchTooWide
from helix_sessions.messages import words
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.memory import filters, names, rows, sql, vectors
from helix_sessions.store.memory.databases import Clause, database_of
from helix_sessions.store.memory.names import Namespace
from helix_sessions.store.memory.operations import ListNamespaces, Search
from helix_sessions.store.memory.vectors import Vector

MAX_OPENED = 10_000
"""So many memories are decrypted for one search."""

_NAMESPACES_AT_ONCE = 200


def found(
    connection: BaseDatabaseWrapper, search: Search, vector: Vector | None, now: datetime
) -> list[list[Any]]:
    """The rows of a search, best first."""
    if encryption.keyring() is not None and (search.query is not None or search.conditions):
        return _among_opened(connection, search, vector, now)
    if search.query is None:
        return _newest(connection, search, now)
    if vector is None:
        return _by_words(connection, search, now)
    return _nearest(connection, search, vector, now)


def _newest(connection: BaseDatabaseWrapper, search: Search, now: datetime) -> list[list[Any]]:
    where = _where(connection, search, now)
    return _fetch(
        connection,
        sql.newest(dialect_of(connection), where.text),
        [*where.params, search.limit, search.offset],
    )


def _by_words(connection: BaseDatabaseWrapper, search: Search, now: datetime) -> list[list[Any]]:
    wanted = words.words_of(search.query or "")
    if not wanted:
        return []
    ranking, where = database_of(connection).ranking(wanted), _where(connection, search, now)
    return _fetch(
        connection,
        sql.best(
            dialect_of(connection), ranking.score, ranking.source, f"{ranking.condition} AND {where.text}"
        ),
        [*ranking.score_params, *ranking.params, *where.params, search.limit, search.offset],
    )


def _nearest(
    connection: BaseDatabaseWrapper, search: Search, vector: Vector, now: datetime
) -> list[list[Any]]:
    nearness, where = database_of(connection).nearness(connection, vector), _where(connection, search, now)
    params = [len(vector), *where.params]
    if nearness is not None:
        return _fetch(
            connection,
            sql.nearest(dialect_of(connection), nearness.text, where.text),
            [*nearness.params, *params, search.limit, search.offset],
        )
    compared = fetch(
        connection,
        sql.vectors_to_compare(where.text),
        [*params, vectors.MAX_COMPARED + 1],
        prepare=False,
    )
    if len(compared) > vectors.MAX_COMPARED:
        raise SearchTooWide(
            f"More than {vectors.MAX_COMPARED:,} vectors would have to be compared. Give a longer prefix,"
            " or install pgvector in the database."
        )
    best: dict[str, tuple[float, Any]] = {}
    for memory_id, updated_at, stored in compared:
        score = vectors.nearness(vector, vectors.unpacked(stored))
        if memory_id not in best or best[memory_id][0] < score:
            best[memory_id] = score, updated_at
    ranked = sorted(best, key=lambda memory_id: (*best[memory_id], memory_id), reverse=True)
    chosen = ranked[search.offset : search.offset + search.limit]
    there = rows.read(connection, chosen, now) if chosen else {}
    return [[*there[memory_id][:-1], best[memory_id][0]] for memory_id in chosen if memory_id in there]


def _among_opened(
    connection: BaseDatabaseWrapper, search: Search, vector: Vector | None, now: datetime
) -> list[list[Any]]:
    """Search where content is encrypted: every memory under the prefix is decrypted and judged here."""
    where = _where(connection, search._replace(conditions=()), now)
    candidates = _fetch(
        connection,
        sql.newest_with_words(dialect_of(connection), where.text),
        [*where.params, MAX_OPENED + 1],
    )
    if len(candidates) > MAX_OPENED:
        raise SearchTooWide(
            f"Content is encrypted, and more than {MAX_OPENED:,} memories would have to be decrypted for this"
            " search. Give a longer prefix."
        )
    near = {} if vector is None else rows.vectors_of(connection, [row[0] for row in candidates])
    wanted = words.words_of(search.query or "")
    judged = []
    for *row, searchable, _ in candidates:
        text = encryption.open_text(rows.place(row[0], "value"), row[3])
        if not filters.holds(search.conditions, documents.load(text)):
            continue
        score: float | None = None
        if vector is not None:
            alike = [each for each in near.get(row[0], []) if len(each) == len(vector)]
            score = max((vectors.nearness(vector, each) for each in alike), default=None)
        elif search.query is not None:
            score = words.score(wanted, encryption.open_text(rows.place(row[0], "searchable"), searchable))
        if search.query is None or score is not None:
            judged.append([*row, score])
    if search.query is not None:
        judged.sort(key=lambda row: row[-1], reverse=True)  # stable: among equals the newest stays first
    return judged[search.offset : search.offset + search.limit]


def _where(connection: BaseDatabaseWrapper, search: Search, now: datetime) -> Clause:
    """That a memory is there, under the prefix, and fits the filter."""
    parts, params = [sql.ALIVE], [rows.moment(connection, now)]
    bounds = names.bounds(search.prefix)
    if bounds is not None:
        parts.append(sql.WITHIN)
        params.extend(bounds)
    if search.conditions:
        fits = database_of(connection).condition(connection, search.conditions)
        parts.append(fits.text)
        params.extend(fits.params)
    return Clause(" AND ".join(parts), params)


def _fetch(connection: BaseDatabaseWrapper, text: str, params: Sequence[Any]) -> list[list[Any]]:
    """Not prepared: how it is best done depends on the prefix and the words."""
    return [list(row) for row in fetch(connection, text, params, prepare=False)]


def namespaces(
    connection: BaseDatabaseWrapper, listing: ListNamespaces, now: datetime, home: Namespace = ()
) -> list[Namespace]:
    """The namespaces that fit, sorted, cut to their first parts where that is asked for. `home` is where
    those begin that may be seen."""
    known: dict[Namespace, None] = {}
    most = listing.offset + listing.limit
    for namespace in _namespaces(connection, listing, now, home, known):
        if _fits(namespace, listing):
            known[namespace[: listing.max_depth]] = None
        if len(known) > most:
            break
    return sorted(known)[listing.offset : most]


def _namespaces(
    connection: BaseDatabaseWrapper,
    listing: ListNamespaces,
    now: datetime,
    home: Namespace,
    known: Container[Namespace],
) -> Iterator[Namespace]:
    """Every namespace that may fit, in order. With a depth, what lies below a namespace is left out where it
    adds nothing to what is known."""
    pattern = listing.prefixes[0] if listing.prefixes else ()
    literal = pattern[: pattern.index(names.ANY)] if names.ANY in pattern else pattern
    bounds = names.bounds(literal if literal[: len(home)] == home else home)
    start, rest = (bounds[0], [bounds[1]]) if bounds else ("", [])
    moment = rows.moment(connection, now)
    text = sql.namespaces(bool(rest))
    while True:
        params = [start, *rest, moment, *rest, moment, _NAMESPACES_AT_ONCE]
        page = [names.parts_of(name) for [name] in fetch(connection, text, params)]
        yield from page
        if len(page) < _NAMESPACES_AT_ONCE:
            return
        last = page[-1]
        top = last[: listing.max_depth]
        is_done = top != last and (top in known or _is_judged_by(top, listing))
        start = names.after(top, below=True) if is_done else names.after(last)


def _is_judged_by(top: Namespace, listing: ListNamespaces) -> bool:
    """Whether all that lies below a namespace fits, or nothing of it does."""
    return not listing.suffixes and all(len(pattern) <= len(top) for pattern in listing.prefixes)


def _fits(namespace: Namespace, listing: ListNamespaces) -> bool:
    return all(names.begins_with(namespace, pattern) for pattern in listing.prefixes) and all(
        names.ends_with(namespace, pattern) for pattern in listing.suffixes
    )
