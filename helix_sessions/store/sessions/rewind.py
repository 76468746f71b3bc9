"""Rewind: the session as it was at a checkpoint, to try again from there."""

from dataclasses import replace

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import CheckpointNotFound
from helix_sessions.store.calls import children, sub_sessions
from helix_sessions.store.context import truncate
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import Transaction, check_version, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import ownership
from helix_sessions.store.state import checkpoints, runnable, snapshots, staging, state_rows
from helix_sessions.store.transcript import lines
from helix_sessions.types import SessionState


def rewind(
    store: Store,
    session_id: str,
    *,
    checkpoint_id: str | None = None,
    expected_version: int | None = None,
) -> SessionState:
    """Rewind state and transcript to a checkpoint, by default the latest.

    What a save may write is as it was then, and the checkpoint is the latest again; versions, runs,
    the log and other checkpoints stay. Messages after the checkpoint are truncated, and messages
    that were truncated since it are appended again, or `EventsArchived` when they went with archived
    events. What was staged is discarded.
    """
    key = session_key(session_id)
    wanted = inputs.optional_identifier(checkpoint_id, "The checkpoint id", limit=inputs.MAX_CHECKPOINT_ID)
    version = inputs.expected_version(expected_version)
    with write_tree(store.using, store._lease) as tree:
        work = tree.lock(key, ALL_COLUMNS, store._owner)
        store._check_head(work)
        check_version(work, version)
        if wanted is None:
            row = checkpoints.latest(store.using, key, work.session.checkpoint_id)
        else:
            row = checkpoints.find(store.using, key, wanted)
        if row is None:
            raise CheckpointNotFound(f"Session {key!r} has no checkpoint{f' {wanted!r}' if wanted else ''}.")
        then = checkpoints.value_of(work.connection, row).state
        ownership.take_away(work, "interrupted", "session_rewound")
        changed = restore_state(tree, work, then)
        changed |= _restore_transcript(work, row)
        changed |= point_at(work, row)
        if staging.discard(work) or changed:
            work.event("session_rewound", {"checkpoint_id": row.checkpoint_id})
    return state_rows.state_of(work.session, then.custom_state)


def point_at(work: UnitOfWork, row: models.Checkpoint) -> bool:
    """Make a checkpoint the latest of the locked session; whether it was not."""
    if work.session.checkpoint_id == row.checkpoint_id:
        return False
    work.change(checkpoint_id=row.checkpoint_id, checkpointed_at=row.created_at, checkpoint_source=row.source)
    return True


def restore_state(tree: Transaction, work: UnitOfWork, then: SessionState) -> bool:
    """Give the locked session the state of a checkpoint; whether it had another."""
    session = work.session
    awaited = then.suspended_awaiting_children
    if awaited:
        refs = sub_sessions.stored(tree.connection.alias, session.session_id)
        settled = children.born_settled(tree, session, awaited, refs)
        then = replace(then, suspended_awaiting_children=settled)
    columns, rested = state_rows.owned_columns(then), runnable.rests_with_inputs(session)
    changes = {name: value for name, value in columns.items() if getattr(session, name) != value}
    before, number = session.status, session.state_number
    work.change(**changes)
    if session.status != before:
        work.change(status_since=work.now)
        work.event("status_changed", {"from": before, "to": session.status})
    runnable.follow(work, rested=rested)
    snapshots.record(work, then.custom_state, documents.dump(then.custom_state))
    return bool(changes) or session.state_number != number


def _restore_transcript(work: UnitOfWork, row: models.Checkpoint) -> bool:
    """Hide what came after the checkpoint, append again what was hidden since."""
    line = lines.at(work.connection, work.session, seq=row.seq, message_count=row.message_count)
    removed = truncate.truncate(work, line.common)
    lines.append(work, line)
    return bool(removed or line.hidden)
