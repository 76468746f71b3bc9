"""Checkpoints: create, find the latest, find by id."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions import models
from helix_sessions.content import documents, encryption
from helix_sessions.exceptions import CheckpointNotFound, CommitConflict
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.cursors import Pager
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import check_version
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import snapshots, state_rows
from helix_sessions.types import Checkpoint, CheckpointMeta, CommitResult, Page

MetaLike = CheckpointMeta | Mapping[str, Any] | None


def create_checkpoint(
    store: Store, session_id: str, meta: MetaLike = None, *, expected_version: int | None = None
) -> Checkpoint:
    """Create a checkpoint of the session as it is. Idempotent under its id."""
    checked = check_meta(meta)
    version = inputs.expected_version(expected_version)
    fingerprint = documents.digest("create", checked.step_id or "")
    with store._write(session_id, columns=ALL_COLUMNS) as work:
        made = replay(work, checked, fingerprint)
        if made is not None:
            return get_checkpoint(store, session_id, str(made.checkpoint_id))
        check_version(work, version)
        record(work, checked, "save", fingerprint)
        session = work.session
        custom = snapshots.read(work.connection, session.session_id, session.state_base, session.state_number)
    return Checkpoint(
        checkpoint_id=session.checkpoint_id,
        session_id=session.session_id,
        step_count=session.step_count,
        status=session.status,
        source="save",
        state=state_rows.state_of(session, custom),
        message_count=session.message_count,
        run_id=session.run_id if checked.run_id is None else checked.run_id,
        step_id=checked.step_id,
        metadata=documents.load(documents.dump(checked.metadata)),
        created_at=work.now,
    )


def get_latest_checkpoint(store: Store, session_id: str) -> Checkpoint | None:
    """Read the checkpoint that was written last, regardless of its step count."""
    row = latest(store.using, session_id, store._read(session_id, ("checkpoint_id",)).checkpoint_id)
    return None if row is None else value_of(store._connection, row)


def get_checkpoint(store: Store, session_id: str, checkpoint_id: str) -> Checkpoint:
    """Read one checkpoint, with the state as it was."""
    key = inputs.identifier(checkpoint_id, "The checkpoint id", limit=inputs.MAX_CHECKPOINT_ID)
    store._read(session_id, ("session_id",))
    row = find(store.using, session_id, key)
    if row is None:
        raise CheckpointNotFound(f"Session {session_id!r} has no checkpoint {key!r}.")
    return value_of(store._connection, row)


def list_checkpoints(
    store: Store, session_id: str, *, limit: int = 50, cursor: str | None = None, offset: int | None = None
) -> Page[Checkpoint]:
    """List the session's checkpoints, the last written first."""
    pager = Pager("checkpoints", "seq", limit=limit, cursor=cursor, newest_first=True)
    skip = inputs.optional_integer(offset, "offset") or 0
    rows = models.Checkpoint.objects.using(store.using).filter(session_id=session_key(session_id))
    store._read(session_id, ("session_id",))
    found, next_cursor = pager.read(rows, skip=skip)
    return Page(items=_values(store._connection, found), next_cursor=next_cursor)


def check_meta(value: MetaLike) -> CheckpointMeta:
    """The meta a caller passed, checked."""
    if value is None:
        return CheckpointMeta()
    meta = CheckpointMeta.of(value)
    inputs.mapping(meta.metadata, "The metadata of a checkpoint")
    return CheckpointMeta(
        checkpoint_id=inputs.optional_identifier(
            meta.checkpoint_id, "The checkpoint id", limit=inputs.MAX_CHECKPOINT_ID
        ),
        step_id=inputs.optional_identifier(meta.step_id, "step_id"),
        run_id=inputs.optional_identifier(meta.run_id, "run_id"),
        metadata=dict(meta.metadata),
    )


def find(using: str, session_id: str, checkpoint_id: str) -> models.Checkpoint | None:
    rows = models.Checkpoint.objects.using(using)
    return rows.filter(session_id=session_id, checkpoint_id=checkpoint_id).first()


def latest(using: str, session_id: str, pointer: str | None) -> models.Checkpoint | None:
    """The checkpoint the session points at; if that is gone, the one of the highest step."""
    row = None if pointer is None else find(using, session_id, pointer)
    if row is None:
        rows = models.Checkpoint.objects.using(using).filter(session_id=session_id)
        row = rows.order_by("-step_count", "-seq").first()
    return row


def value_of(connection: BaseDatabaseWrapper, row: models.Checkpoint) -> Checkpoint:
    """A checkpoint with its state."""
    return _values(connection, [row])[0]


def replay(work: UnitOfWork, meta: CheckpointMeta, fingerprint: str) -> CommitResult | None:
    """The result of this commit, if it was made before. A commit is identified by its checkpoint id."""
    if meta.checkpoint_id is None:
        return None
    made = find(work.connection.alias, work.session.session_id, meta.checkpoint_id)
    if made is None:
        return None
    if encryption.unveil(made.session_id, made.fingerprint) != fingerprint:
        raise CommitConflict(f"Checkpoint {meta.checkpoint_id!r} was committed before, with other content.")
    return CommitResult(
        version=made.frame["version"],
        checkpoint_id=made.checkpoint_id,
        message_count=made.message_count,
        head_seq=made.frame["head_seq"],
        replayed=True,
    )


def record(work: UnitOfWork, meta: CheckpointMeta, source: str, fingerprint: str = "") -> str:
    """Add a checkpoint of the locked session as this write leaves it, and point at it.

    To be called when the write has nothing more to add; the version it will have is one more.
    """
    session = work.session
    key = meta.checkpoint_id or _new_id(work)
    seq = work.event("checkpoint_created", {"checkpoint_id": key, "source": source})
    snapshots.pin(work)
    work.change(checkpoint_id=key, checkpointed_at=work.now, checkpoint_source=source)
    work.insert(
        models.Checkpoint,
        checkpoint_id=key,
        seq=seq,
        step_count=session.step_count,
        status=session.status,
        source=source,
        message_count=session.message_count,
        frame=state_rows.frame_of(session, version=session.version + 1, now=work.now),
        state_number=session.state_number,
        state_base=session.state_base,
        run_id=session.run_id if meta.run_id is None else meta.run_id,
        step_id=meta.step_id,
        metadata=documents.write(meta.metadata),
        fingerprint=fingerprint,
        created_at=work.now,
    )
    return key


def _new_id(work: UnitOfWork) -> str:
    """An id with session, step and time. It ends with the event's number, so it is unique."""
    session = work.session
    milliseconds = int(work.now.timestamp() * 1000)
    number = (session.head_seq + 1) & 0xFFFFFF
    return f"cpv1-{session.session_id}-s{session.step_count}-t{milliseconds}-{number:06x}"


def result_of(work: UnitOfWork) -> CommitResult:
    """The result of the flushed write."""
    session = work.session
    return CommitResult(
        version=session.version,
        checkpoint_id=session.checkpoint_id,
        message_count=session.message_count,
        head_seq=session.head_seq,
    )


def _values(connection: BaseDatabaseWrapper, rows: Sequence[models.Checkpoint]) -> list[Checkpoint]:
    if not rows:
        return []
    places = [(row.state_base, row.state_number) for row in rows]
    states = snapshots.read_many(connection, rows[0].session_id, places)
    return [_value(row, states[row.state_number]) for row in rows]


def _value(row: models.Checkpoint, custom: dict[str, Any]) -> Checkpoint:
    state = state_rows.state_of_frame(
        row.frame,
        session_id=row.session_id,
        custom=custom,
        checkpoint_id=row.checkpoint_id,
        created_at=row.created_at,
        source=row.source,
        status=row.status,
        step_count=row.step_count,
        message_count=row.message_count,
    )
    return Checkpoint(
        checkpoint_id=row.checkpoint_id,
        session_id=row.session_id,
        step_count=row.step_count,
        status=row.status,
        source=row.source,
        state=state,
        message_count=row.message_count,
        run_id=row.run_id,
        step_id=row.step_id,
        metadata=row.metadata,
        created_at=row.created_at,
    )
