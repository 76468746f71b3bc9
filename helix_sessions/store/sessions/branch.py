"""Branch a session: a new one with its state and messages at a point."""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents, encryption
from helix_sessions.exceptions import CheckpointNotFound
from helix_sessions.models import Checkpoint, Event, Message
from helix_sessions.store.context import context_rows
from helix_sessions.store.engine import inputs, open_calls
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_rows import ALL_COLUMNS, SessionRow, lock_row
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.keyed import notes
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
    new_id: str,
    *,
    checkpoint_id: str | None = None,
    message_count: int | None = None,
) -> SessionState:
    """Branch: a new session with the state and the messages of the checkpoint, or of now; with
    `message_count`, the first of them. `EventsArchived` when some went with events that were archived."""
    source_key, key = session_key(source_id), session_key(new_id)
    store._refuse_to_recreate(key)
    checkpoint = inputs.optional_identifier(
        checkpoint_id, "The checkpoint id", limit=inputs.MAX_CHECKPOINT_ID
    )
    most = inputs.optional_integer(message_count, "message_count")
    with locking_transaction(store.using) as connection:
        work, custom = branch(connection, source_key, key, checkpoint, most, owner=store._owner)
        work.flush()
    return state_rows.state_of(work.session, custom)


_KEPT_BY_A_BRANCH = ("agent_type", "mode", "owner_id", "user_id", "tags", "metadata", "location")


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
            **{name: boundary[name] for name in _KEPT_BY_A_BRANCH},
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
    if checkpoint_id is None and message_count is None:  # notes are of the present
        notes.copy(work, source_id)
    return work, custom


def _boundary(using: str, source: SessionRow, checkpoint_id: str | None) -> dict[str, Any]:
    """What a branch takes over, as it is now or as it was at a checkpoint."""
    if checkpoint_id is None:
        names = ("state_base", "state_number", "step_count", *_KEPT_BY_A_BRANCH)
        return {"seq": None, **{name: getattr(source, name) for name in names}}
    checkpoint = (
        Checkpoint.objects.using(using)
        .filter(session_id=source.session_id, checkpoint_id=checkpoint_id)
        .first()
    )
    if checkpoint is None:
        raise CheckpointNotFound(f"Session {source.session_id!r} has no checkpoint {checkpoint_id!r}.")
    then = {name: checkpoint.frame.get(name) for name in _KEPT_BY_A_BRANCH}
    location = then.pop("location")
    return {
        **then,
        "tags": documents.write(then["tags"]),
        "metadata": documents.write(then["metadata"]),
        "location": None if location is None else documents.write(location),
        "owner_id": source.owner_id,
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
    first_seq = work.session.head_seq + 1
    integer, moment = (
        ("%s::bigint", "%s::timestamptz") if work.connection.vendor == "postgresql" else ("%s", "%s")
    )
    as_text = str if work.connection.vendor == "postgresql" else int
    [now] = table(Event).encoder(work.connection.vendor, ("created_at",))([work.now])
    key, offset, most = work.session.session_id, as_text(first_seq), as_text(count)
    visible = (
        f'FROM {table(Message).name} WHERE "session_id" = %s AND "truncated_seq" IS NULL AND "position" < %s'
    )
    work.statement(
        f'INSERT INTO {table(Message).name} ("session_id", "position", "seq", "role", "content")'
        f' SELECT %s, "position", "position" + {integer}, "role", "content" {visible}',
        [key, offset, source_id, most],
    )
    work.statement(
        f'INSERT INTO {table(Event).name} ("session_id", "seq", "type", "message_position", "created_at")'
        f""" SELECT %s, "position" + {integer}, "role" || '_message', "position", {moment} {visible}""",
        [key, offset, now, source_id, most],
    )
    work.change(message_count=count, head_seq=work.session.head_seq + count)


def _seal_copies(work: UnitOfWork, source_id: str, count: int) -> None:
    first_seq, messages = work.session.head_seq + 1, table(Message)
    for start in range(0, count, _COPIED_AT_ONCE):
        rows = fetch(
            work.connection,
            f"SELECT {messages.selection(work.connection.vendor, ('position', 'seq', 'role', 'content'))}"  # noqa: S608
            f' FROM {messages.name} WHERE "session_id" = %s AND "truncated_seq" IS NULL'
            ' AND "position" >= %s AND "position" < %s ORDER BY "position"',
            [source_id, start, min(count, start + _COPIED_AT_ONCE)],
        )
        for position, seq, role, content in rows:
            text = messages.open_text("content", content, source_id, position, seq)
            place = {"seq": first_seq + position, "position": position}
            work.insert(Message, role=role, content=text, **place)
            work.insert(
                Event,
                seq=place["seq"],
                type=f"{role}_message",
                message_position=position,
                created_at=work.now,
            )
    work.change(message_count=count, head_seq=work.session.head_seq + count)
