"""Branch a session: a new one with its state and messages at a point."""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents, encryption
from helix_sessions.exceptions import CheckpointNotFound
from helix_sessions.models import Checkpoint, Event, Message
from helix_sessions.store.context import context_rows
from helix_sessions.store.engine import ids, inputs, message_words, open_calls
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_columns import ALL_COLUMNS, BRANCHED_COLUMNS
from helix_sessions.store.engine.session_rows import SessionRow, lock_row
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.keyed import blobs, notes
from helix_sessions.store.sessions import sql
from helix_sessions.store.sessions.create import new_work
from helix_sessions.store.state import agent_records, snapshots, state_rows
from helix_sessions.store.transcript import lines
from helix_sessions.types import (
    UNSET,
    SessionState,
)

_COPIED_AT_ONCE = 500


def clone_session(
    store: Store,
    source_id: str,
    new_id: str | None,
    *,
    checkpoint_id: str | None = None,
    message_count: int | None = None,
) -> SessionState:
    """Branch: a new session with the state and the messages of the checkpoint, or of now; with
    `message_count`, the first of them. Without a `new_id` it gets one. `EventsArchived` when some went
    with events that were archived."""
    source_key, key = session_key(source_id), ids.new_id() if new_id is None else session_key(new_id)
    store._refuse_to_recreate(key)
    checkpoint = inputs.optional_identifier(
        checkpoint_id, "The checkpoint id", limit=inputs.MAX_CHECKPOINT_ID
    )
    most = inputs.optional_integer(message_count, "message_count")
    with locking_transaction(store.using) as connection:
        work, custom = branch(connection, source_key, key, checkpoint, most, owner=store._owner)
        work.flush()
    return state_rows.state_of(work.session, custom)


def branch(
    connection: BaseDatabaseWrapper,
    source_id: str,
    new_id: str,
    checkpoint_id: str | None,
    message_count: int | None = None,
    *,
    custom: dict[str, Any] | None = None,
    owner: Any = UNSET,
    with_agent: bool = True,
) -> tuple[UnitOfWork, dict[str, Any]]:
    """A session that branches from another, which is locked, and its custom state: the source's, or this."""
    source = lock_row(connection, source_id, ALL_COLUMNS, owner)
    boundary = _boundary(connection.alias, source, checkpoint_id)
    if custom is None:
        custom = snapshots.read(connection, source_id, boundary["state_base"], boundary["state_number"])
    if boundary["seq"] is None:
        line = lines.present(source, message_count)
    else:
        then = {"seq": boundary["seq"], "message_count": boundary["message_count"]}
        line = lines.at(connection, source, **then, most=message_count)
    work = new_work(
        connection,
        {
            "session_id": new_id,
            "forked_from_session_id": source_id,
            "forked_from_checkpoint_id": checkpoint_id,
            "step_count": boundary["step_count"],
            "open_calls": open_calls.at(
                connection, source_id, source.open_calls, source.message_count, line.common
            ),
            "priority": source.base_priority,
            "base_priority": source.base_priority,
            **{name: boundary[name] for name in BRANCHED_COLUMNS},
        },
    )
    snapshots.record(work, custom, documents.dump(custom))
    forked = {"agent_type": source.agent_type, "forked_from": [source_id, checkpoint_id]}
    work.event("session_started", forked)
    context_rows.copy(work, source_id, line.common, work.session.head_seq + 1)
    _copy_messages(work, source_id, line.common)
    lines.append(work, line)
    if with_agent:
        agent_records.give(work, source_id)
    if source.has_blobs:
        blobs.copy(work, source_id)
    if checkpoint_id is None and message_count is None:  # notes are of the present
        notes.copy(work, source_id)
    return work, custom


def _boundary(using: str, source: SessionRow, checkpoint_id: str | None) -> dict[str, Any]:
    """What a branch takes over, as it is now or as it was at a checkpoint."""
    if checkpoint_id is None:
        names = ("state_base", "state_number", "step_count", *BRANCHED_COLUMNS)
        return {"seq": None, **{name: getattr(source, name) for name in names}}
    checkpoint = (
        Checkpoint.objects.using(using)
        .filter(session_id=source.session_id, checkpoint_id=checkpoint_id)
        .first()
    )
    if checkpoint is None:
        raise CheckpointNotFound(f"Session {source.session_id!r} has no checkpoint {checkpoint_id!r}.")
    return {
        **state_rows.columns_of_frame(checkpoint.frame, BRANCHED_COLUMNS),
        "owner_id": source.owner_id,
        "base_priority": source.base_priority,
        "state_base": checkpoint.state_base,
        "state_number": checkpoint.state_number,
        "step_count": checkpoint.step_count,
        "seq": checkpoint.seq,
        "message_count": checkpoint.message_count,
    }


def _copy_messages(work: UnitOfWork, source_id: str, count: int) -> None:
    """Copy the first messages of the source, each with its event: inside the database, but for content that
    has to be sealed for its new place."""
    if not count:
        return
    if encryption.keyring() is not None:
        _seal_copies(work, source_id, count)
        return
    key, first_seq = work.session.session_id, work.session.head_seq + 1
    work.statement(sql.copy_messages(work.dialect), [key, first_seq, source_id, count])
    work.statement(sql.copy_events(work.dialect), [key, first_seq, work.now, source_id, count])
    if message_words.are_kept():
        work.statement(sql.copy_words(work.dialect), [key, first_seq, source_id, count])
    work.change(message_count=count, head_seq=work.session.head_seq + count)


def _seal_copies(work: UnitOfWork, source_id: str, count: int) -> None:
    first_seq, messages = work.session.head_seq + 1, table(Message)
    for start in range(0, count, _COPIED_AT_ONCE):
        place = [source_id, start, min(count, start + _COPIED_AT_ONCE)]
        rows = fetch(work.connection, sql.visible_messages(work.dialect), place)
        for position, seq, role, content in rows:
            text = messages.open_text("content", content, source_id, position, seq)
            number = first_seq + position
            work.insert(Message, position=position, seq=number, role=role, content=text)
            work.insert(
                Event,
                seq=number,
                type=f"{role}_message",
                message_position=position,
                created_at=work.now,
            )
    work.change(message_count=count, head_seq=work.session.head_seq + count)
