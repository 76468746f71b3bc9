"""Sessions as the runtime has them: loaded with their agent, created and saved whole, one row lock each.

A save compares with what was loaded and writes what differs. The transcript is saved as a difference: how
many of the first messages stay, and the new ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from django.db import connections

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput, SessionConflict, SessionNotFound, StaleState
from helix_sessions.messages.tool_ledger import heal
from helix_sessions.models import AgentRecord, Message
from helix_sessions.store.agents import sql
from helix_sessions.store.calls import children
from helix_sessions.store.context import truncate
from helix_sessions.store.engine import inputs, moves, open_calls
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.ids import new_id
from helix_sessions.store.engine.session_columns import LIGHT_COLUMNS
from helix_sessions.store.engine.session_rows import (
    GONE,
    SessionRow,
    check_owner,
    check_row_version,
    lock_row,
)
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.transactions import Transaction, locking_transaction, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import usages
from helix_sessions.store.sessions.branch import branch
from helix_sessions.store.sessions.create import new_work
from helix_sessions.store.sessions.listing import list_sessions
from helix_sessions.store.state import agent_records, snapshots
from helix_sessions.types import JSON, TOMBSTONE, UNSET, Page, Unset
from helix_sessions.values.agents import (
    AgentDefinition,
    AgentSession,
    AgentSessionInfo,
    AgentState,
    Stored,
    Transcript,
)
from helix_sessions.writes import apply_writes, parse_writes

_COLUMNS = (
    "session_id",
    "parent_session_id",
    "status",
    "version",
    "agent_type",
    "metadata",
    "message_count",
    "head_seq",
    "open_calls",
    "owner_id",
    "created_at",
    "updated_at",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A loaded session, with what a save needs of its rows."""

    session: AgentSession
    metadata: str
    record: Mapping[str, Any] | None
    """The agent's row as it is stored, documents as text."""
    created_at: datetime
    """Tells the session from a later one with the same id."""
    messages: Stored
    open_calls: str | None
    """The tool calls of the transcript that have no result."""


def load(store: Store, session_id: str) -> Loaded:
    """A session with its agent, in one query that reads no message. Tombstones are found too."""
    key = session_key(session_id)
    rows = fetch(store._connection, sql.session_with_agent(store._dialect, _COLUMNS), [key])
    if not rows:
        raise SessionNotFound(session_id=session_id)
    width = len(_COLUMNS)
    row = SessionRow.read(key, _COLUMNS, rows[0][:width])
    check_owner(key, row, store._owner)
    if row.status == TOMBSTONE:
        moves.refuse_moved(store._connection, key)
    found = rows[0][width:]
    return _loaded(store.using, row, agent_records.decoded(found) if found[0] is not None else None)


def check_version(loaded: Loaded, expected_version: int | None) -> None:
    """Raise `StaleState` unless the session has this version."""
    check_row_version(loaded.session, expected_version)


def page(store: Store, filters: dict[str, Any]) -> Page[AgentSessionInfo]:
    """A page of `list_sessions`, each session in a line. Only `status="deleted"` finds tombstones."""
    status = filters.pop("status", None)
    if status is not None:
        status = agent_records.stored_status(status)
    found = list_sessions(store, status=GONE if status == TOMBSTONE else status, **filters)
    labels = agent_records.labels(store.using, [summary.session_id for summary in found.items])
    items = [
        AgentSessionInfo(
            session_id=summary.session_id,
            parent_id=summary.parent_session_id,
            status=agent_records.shown_status(summary.status),
            version=summary.version,
            agent_name=summary.agent_type,
            agent_label=labels.get(summary.session_id),
            created_at=summary.created_at,
            updated_at=summary.updated_at,
        )
        for summary in found.items
    ]
    return Page(items=items, next_cursor=found.next_cursor)


def unsaved(
    definition: AgentDefinition, *, session_id: str | None = None, seed: AgentState | None = None
) -> AgentSession:
    """A session that is about to be created."""
    key = new_id() if session_id is None else session_key(session_id)
    if seed is None:
        seed = AgentState(
            system_prompt=definition.system_prompt, model=definition.model, budget=definition.budget
        )
    return fresh(key, definition, seed, parent_id=None)


def fresh(
    session_id: str | None, definition: AgentDefinition, state: AgentState, *, parent_id: str | None
) -> AgentSession:
    """An active session that is not stored yet, of version 0."""
    info = AgentSessionInfo(
        session_id=new_id() if session_id is None else session_id,
        parent_id=parent_id,
        status="active",
        version=0,
        agent_name=definition.name,
        agent_label=definition.label,
        created_at=None,
        updated_at=None,
    )
    return AgentSession(info, definition, state)


def create(store: Store, session: AgentSession) -> Loaded:
    """Store a new session, at version 1."""
    _check(session)
    columns = _new_columns(session)
    record = agent_records.written(session)
    said = inputs.messages(session.state.messages)
    with locking_transaction(store.using) as connection:
        columns["owner_id"] = store._owner_key(None)
        if columns["parent_session_id"] is not None:
            parent = lock_row(connection, columns["parent_session_id"], owner=store._owner)
            columns["root_session_id"] = parent.root_session_id or parent.session_id
        work = new_work(connection, columns)
        started = {"agent_type": columns["agent_type"], "parent_session_id": columns["parent_session_id"]}
        work.event("session_started", {name: value for name, value in started.items() if value})
        _say(work, said)
        work.insert(AgentRecord, **record)
        work.flush()
    return _loaded(store.using, work.session, record)


def fork(store: Store, source: Loaded, session: AgentSession) -> Loaded:
    """Store a session that an action derived from another, which must not have changed meanwhile."""
    _check(session)
    columns = _new_columns(session)
    record = agent_records.written(session)
    kept, added = _difference(source.messages, session.state.messages)
    said = inputs.messages(added)
    try:
        with locking_transaction(store.using) as connection:
            origin = lock_row(connection, source.session.session_id, LIGHT_COLUMNS, store._owner)
            _check_same(source, origin)
            check_row_version(origin, source.session.version)
            work, _ = branch(
                connection, origin.session_id, columns["session_id"], None, kept, with_agent=False
            )
            if columns["parent_session_id"] == origin.session_id:
                columns["root_session_id"] = origin.root_session_id or origin.session_id
            work.change(**columns, step_count=0)
            _say(work, said)
            work.insert(AgentRecord, **record)
            work.flush()
    except StaleState as stale:
        raise _conflict(stale) from None
    return _loaded(store.using, work.session, record)


def save(
    store: Store,
    loaded: Loaded,
    session: AgentSession,
    *,
    action: str,
    writes: Iterable[Any] = (),
    output: JSON | Unset = UNSET,
) -> Loaded:
    """Save the outcome of an action on a loaded session, if it is unchanged since; its version rises by
    one if anything differs. `writes` are applied to the custom state."""
    _check(session)
    if session.definition.name != loaded.session.definition.name:
        raise InvalidInput("The kind of agent a session has never changes.")
    status = agent_records.stored_status(session.info.status)
    record = agent_records.written(session)
    metadata = inputs.metadata(session.state.metadata)
    kept, added = _difference(loaded.messages, session.state.messages)
    said, parsed = inputs.messages(added), parse_writes(writes)
    try:
        with _writing(store, session, stops=status not in ("active", "paused")) as (tree, parent, work):
            _check_same(loaded, work.session)
            changed = agent_records.changes(loaded.record, record)
            before = work.session.status, work.session.message_count
            work.event("action_applied", {"action": action})
            truncate.truncate(work, kept)
            _say(work, said)
            if parsed:
                _merge(work, parsed)
            if output is not UNSET:
                work.change(output=inputs.document(output))
            if metadata != loaded.metadata:
                _describe(work, documents.load(loaded.metadata), session.state.metadata, metadata)
            agent_records.put(work, loaded.record, record, changed)
            _count_usage(work, loaded.record, record)
            if status != before[0]:
                children.enter(tree, parent, work, {"status": status})
    except StaleState as stale:
        raise _conflict(stale) from None
    known = loaded.messages.messages
    if known is not None:
        known = [*known[:kept], *(documents.load(text) for _, text in said)]
    return _loaded(store.using, work.session, record, known)


def _count_usage(work: UnitOfWork, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> None:
    """Count what the execution of an agent has used, as far as an earlier save has not."""
    old, new = (
        None if record is None or record["execution"] is None else documents.load(record["execution"])
        for record in (before, after)
    )
    if new is None or new.get("usage") is None:
        return
    same = before is not None and before["execution_count"] == after["execution_count"]
    counted = old.get("usage") if same and old is not None else None
    usages.replace(work, counted, documents.dump(new["usage"]))


@contextmanager
def _writing(
    store: Store, session: AgentSession, *, stops: bool
) -> Iterator[tuple[Transaction, UnitOfWork | None, UnitOfWork]]:
    """Lock a session that is saved; one that the save may stop, with its parent, who is told."""
    key = session_key(session.session_id)
    with write_tree(store.using, store._lease) as tree:
        parent, work = children.lock_with_parent(tree, key, store._owner, tombstones=True, alone=not stops)
        store._check_head(work)
        check_row_version(work.session, session.version)
        yield tree, parent, work


def _loaded(
    using: str,
    row: SessionRow,
    record: Mapping[str, Any] | None,
    known: Sequence[Any] | None = None,
) -> Loaded:
    count, head = row.message_count, row.head_seq
    stored = Stored(count, partial(_read_messages, using, row.session_id, count, head), known)
    definition, state = agent_records.read(row.agent_type, record)
    info = AgentSessionInfo(
        session_id=row.session_id,
        parent_id=row.parent_session_id,
        status=agent_records.shown_status(row.status),
        version=row.version,
        agent_name=definition.name,
        agent_label=definition.label,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
    state = replace(
        state, messages=Transcript(stored=stored, kept=count), metadata=documents.load(row.metadata)
    )
    return Loaded(
        session=AgentSession(info, definition, state),
        metadata=row.metadata,
        record=record,
        created_at=row.created_at,
        messages=stored,
        open_calls=row.open_calls,
    )


def healing(loaded: Loaded, session: AgentSession) -> list[dict[str, Any]]:
    """Results for open tool calls, so that a model accepts the transcript. Messages are read for it only if
    the transcript is not as it was loaded."""
    now = session.state.messages
    untouched = isinstance(now, Transcript) and now.stored is loaded.messages and not now.added
    if untouched and len(now) == loaded.messages.count:
        return open_calls.closing_messages(loaded.open_calls)
    return heal(now)


def _read_messages(using: str, session_id: str, count: int, head_seq: int) -> list[Any]:
    connection = connections[using]
    place = [session_id, count, head_seq, head_seq]
    rows = fetch(connection, sql.messages_then(dialect_of(connection)), place)
    if len(rows) != count:
        raise SessionNotFound(f"The session {session_id!r} was deleted meanwhile.", session_id=session_id)
    found = table(Message)
    return documents.load_all([found.open_text("content", text, *key) for *key, text in rows])


def _difference(stored: Stored, now: Sequence[Any]) -> tuple[int, Sequence[Any]]:
    """How many of the stored messages stay, and what comes behind them."""
    if isinstance(now, Transcript) and now.stored is stored:
        return now.kept, now.added
    before, after = stored.all(), list(now)
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    return same, after[same:]


def _new_columns(session: AgentSession) -> dict[str, Any]:
    return {
        "session_id": session_key(session.info.session_id),
        "agent_type": inputs.identifier(session.definition.name, "The name of an agent"),
        "parent_session_id": inputs.optional_identifier(session.info.parent_id, "The parent's id"),
        "status": agent_records.stored_status(session.info.status),
        "metadata": inputs.metadata(session.state.metadata),
    }


def _say(work: UnitOfWork, said: list[tuple[str, str]]) -> None:
    for role, text in said:
        work.message(role, text)


def _merge(work: UnitOfWork, parsed: list[dict[str, Any]]) -> None:
    session = work.session
    before = snapshots.read(work.connection, session.session_id, session.state_base, session.state_number)
    custom = apply_writes(before, parsed)
    snapshots.record(work, custom, documents.dump(custom), before=before, writes=parsed)
    work.event("state_merged", {"writes": parsed})


def _describe(work: UnitOfWork, before: dict[str, Any], after: Mapping[str, Any], text: str) -> None:
    keys = [key for key in {**before, **after} if before.get(key, UNSET) != after.get(key, UNSET)]
    work.change(metadata=text)
    if keys:
        work.event("metadata_patched", {"keys": keys})


def _check(session: Any) -> None:
    if not isinstance(session, AgentSession):
        raise InvalidInput(f"An AgentSession is needed, not a {type(session).__name__}.")


def _check_same(loaded: Loaded, row: SessionRow) -> None:
    if row.created_at != loaded.created_at:
        raise SessionNotFound(f"The session {row.session_id!r} was deleted meanwhile.")


def _conflict(stale: StaleState) -> SessionConflict:
    return SessionConflict(
        expected_version=stale.expected_version,
        current_version=stale.current_version,
        current_status=agent_records.shown_status(stale.current_status),
    )
