"""Snapshots of the custom state: whole while it is small, as writes on a base when it is large.

A session points at a snapshot number, and so does each checkpoint; the numbers they point at are pinned.
A large document that changes a little per step is stored once, with a chain of small writes behind it,
and read in one query: the base and what follows it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.models import StateSnapshot
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import sql
from helix_sessions.writes import apply_writes, diff

SMALL = 16 * 1024
"""Documents up to this size are stored whole, without reading the one before."""

LONGEST_CHAIN = 200
"""The most writes on one base, before a new base is stored."""


def read(connection: BaseDatabaseWrapper, session_id: str, base: int, number: int) -> dict[str, Any]:
    """The document at a snapshot number."""
    return read_many(connection, session_id, [(base, number)])[number]


def read_many(
    connection: BaseDatabaseWrapper, session_id: str, places: Sequence[tuple[int, int]]
) -> dict[int, dict[str, Any]]:
    """The documents at several numbers, each given with its base, in one query."""
    wanted = {number for _, number in places}
    found: dict[int, dict[str, Any]] = {0: {}}
    if wanted - {0}:
        first = min(base for base, number in places if number)
        rows = fetch(connection, sql.snapshots(dialect_of(connection)), [session_id, first, max(wanted)])
        found.update((number, state) for number, state in fold(session_id, rows) if number in wanted)
        if not wanted <= found.keys():
            why = f"The session {session_id!r} was deleted meanwhile."
            raise SessionNotFound(why, session_id=session_id)
    return found


def fold(session_id: str, rows: Iterable[Sequence[Any]]) -> Iterable[tuple[int, dict[str, Any]]]:
    """The document at each number, out of the rows (number, base, text) of a range."""
    current: dict[str, Any] = {}
    for number, base, text in rows:
        value = documents.load(table(StateSnapshot).open_text("document", text, session_id, number))
        current = value if base == number else apply_writes(current, value)
        yield number, current


def record(
    work: UnitOfWork,
    document: dict[str, Any],
    text: str,
    *,
    before: dict[str, Any] | None = None,
    writes: list[dict[str, Any]] | None = None,
) -> None:
    """Store the session's document, if it has changed. `before` and `writes` save a read and a diff."""
    session = work.session
    digest = documents.digest(text)
    if session.state_number and digest == session.state_digest:
        return
    if not session.state_number and text == "{}":
        return
    change = None if len(text) <= SMALL else _change(work, document, before, writes)
    number = session.state_number + 1
    if change is None:
        work.insert(StateSnapshot, number=number, base=number, document=text)
        if session.state_number > session.state_pinned:
            work.delete(StateSnapshot, ("number", ">", session.state_pinned), ("number", "<", number))
        work.change(state_number=number, state_base=number, state_size=len(text), state_delta=0)
    else:
        work.insert(StateSnapshot, number=number, base=session.state_base, document=change)
        work.change(state_number=number, state_delta=session.state_delta + len(change))
    work.change(state_digest=digest)


def pin(work: UnitOfWork) -> None:
    """Keep the present document, because a checkpoint points at it."""
    if work.session.state_pinned != work.session.state_number:
        work.change(state_pinned=work.session.state_number)


def _change(
    work: UnitOfWork,
    document: dict[str, Any],
    before: dict[str, Any] | None,
    writes: list[dict[str, Any]] | None,
) -> str | None:
    """The writes that lead to this document, if they are small enough to store instead."""
    session = work.session
    room = session.state_size // 2 - session.state_delta
    if not session.state_base or room <= 0 or session.state_number - session.state_base >= LONGEST_CHAIN:
        return None
    if writes is None:
        if before is None:
            before = read(work.connection, session.session_id, session.state_base, session.state_number)
        writes = diff(before, document)
    change = documents.write(writes)  # deeper than a document may be, where the document is as deep as it may
    return change if len(change) <= room else None
