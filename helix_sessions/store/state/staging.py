"""Staged writes of tools: kept apart until their step is committed."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db.models import Max
from django.utils import timezone

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput, SessionNotFound
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.cursors import Pager
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import check_version
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import checkpoints, snapshots
from helix_sessions.store.state.checkpoints import MetaLike
from helix_sessions.types import UNSET, CommitResult, Page, StagedChange
from helix_sessions.writes import apply_writes, parse_writes


def stage_changes(
    store: Store, session_id: str, step_id: str, tool_call_id: str, writes: Iterable[Any]
) -> StagedChange:
    """Stage a tool's writes for the commit of its step. The same step and call again replaces them,
    in their old place."""
    step = inputs.identifier(step_id, "step_id")
    call = inputs.identifier(tool_call_id, "tool_call_id")
    text = documents.dump(parse_writes(writes))
    with store._write(session_id) as work:
        work.versioned = False
        stage(work, step, call, text)
    return StagedChange(step_id=step, tool_call_id=call, writes=documents.load(text), staged_at=work.now)


def get_staged_changes(store: Store, session_id: str, step_id: str | None = None) -> list[StagedChange]:
    """The staged writes, in the order of their application."""
    store._read(session_id, ("session_id",))
    return staged(store.using, session_id, inputs.optional_identifier(step_id, "step_id"))


def list_staged_changes(
    store: Store, session_id: str, *, step_id: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[StagedChange]:
    """A page of the staged writes, in the order of their application."""
    pager = Pager("staging", "place", limit=limit, cursor=cursor)
    rows = models.StagedChange.objects.using(store.using).filter(session_id=session_key(session_id))
    step = inputs.optional_identifier(step_id, "step_id")
    if step is not None:
        rows = rows.filter(step_id=step)
    store._read(session_id, ("session_id",))
    return pager.page(rows, _value)


def has_staged_changes(store: Store, session_id: str, step_id: str | None = None) -> bool:
    """Whether anything is staged."""
    step = inputs.optional_identifier(step_id, "step_id")
    if step is None:
        return bool(store._read(session_id, ("staged_count",)).staged_count)
    store._read(session_id, ("session_id",))
    rows = models.StagedChange.objects.using(store.using)
    return rows.filter(session_id=session_id, step_id=step).exists()


def promote_staging(
    store: Store, session_id: str, step_id: str, meta: MetaLike = None, *, expected_version: int | None = None
) -> CommitResult:
    """Apply the staged writes of a step to the stored state, with a checkpoint, if there are any."""
    step = inputs.identifier(step_id, "step_id")
    checked = replace(checkpoints.check_meta(meta), step_id=step)
    version = inputs.expected_version(expected_version)
    fingerprint = documents.digest("promote", step)
    with store._write(session_id, columns=ALL_COLUMNS) as work:
        made = checkpoints.replay(work, checked, fingerprint)
        if made is not None:
            return made
        check_version(work, version)
        session = work.session
        before = snapshots.read(work.connection, session.session_id, session.state_base, session.state_number)
        custom, promoted = promote(work, before, step)
        if promoted:
            snapshots.record(work, custom, documents.dump(custom), before=before)
            checkpoints.record(work, checked, "staging", fingerprint)
    return checkpoints.result_of(work)


def discard_staging(store: Store, session_id: str, step_id: str | None = None) -> int:
    """Discard the staged writes; returns how many."""
    step = inputs.optional_identifier(step_id, "step_id")
    with store._write(session_id) as work:
        work.versioned = False
        rows = models.StagedChange.objects.using(store.using).filter(session_id=work.session.session_id)
        count = rows.count() if step is None else rows.filter(step_id=step).count()
        _forget_step(work, step, count)
    return count


def cleanup_orphaned_staging(store: Store, *, older_than: timedelta, session_id: str | None = None) -> int:
    """Discard writes that were staged longer ago, unless their session has a run; returns how many."""
    if not isinstance(older_than, timedelta):
        raise InvalidInput("older_than must be a timedelta.")
    try:
        before = timezone.now() - older_than
    except OverflowError:
        raise InvalidInput("older_than is out of range.") from None
    rows = models.StagedChange.objects.using(store.using).filter(staged_at__lt=before)
    if session_id is not None:
        store._read(session_id, ("session_id",))
        rows = rows.filter(session_id=session_key(session_id))
    if store._owner is not UNSET:
        rows = rows.filter(session__owner_id=store._owner)
    removed = 0
    for key in sorted(set(rows.values_list("session_id", flat=True))):
        try:
            with store._write(key) as work:
                work.versioned = False
                count = 0
                if work.session.run_id is None:
                    count = rows.filter(session_id=key).count()
                    _forget(work, count, ("staged_at", "<", before))
            removed += count
        except SessionNotFound:
            continue
    return removed


def stage(work: UnitOfWork, step_id: str, tool_call_id: str, writes: str) -> None:
    """Stage the text of writes for the commit of their step."""
    session = work.session
    key = {"step_id": step_id, "tool_call_id": tool_call_id}
    last = None
    if session.staged_count:
        rows = models.StagedChange.objects.using(work.connection.alias).filter(session_id=session.session_id)
        if rows.filter(**key).exists():
            work.update(models.StagedChange, key, writes=writes, staged_at=work.now)
            work.change(staged_count=session.staged_count)  # so that who knows the row sees that it changed
            return
        last = rows.aggregate(last=Max("place"))["last"]
    place = 0 if last is None else last + 1
    work.insert(models.StagedChange, **key, place=place, writes=writes, staged_at=work.now)
    work.change(staged_count=session.staged_count + 1)


def staged(using: str, session_id: str, step_id: str | None = None) -> list[StagedChange]:
    """The staged writes, in the order of their application."""
    rows = models.StagedChange.objects.using(using).filter(session_id=session_id)
    if step_id is not None:
        rows = rows.filter(step_id=step_id)
    return [_value(row) for row in rows.order_by("place")]


def _value(row: models.StagedChange) -> StagedChange:
    return StagedChange(
        step_id=row.step_id, tool_call_id=row.tool_call_id, writes=row.writes, staged_at=row.staged_at
    )


def promote(
    work: UnitOfWork, custom: dict[str, Any], step_id: str | None = None
) -> tuple[dict[str, Any], list[StagedChange]]:
    """Apply the staged writes to a document; returns the outcome, and the writes."""
    if not work.session.staged_count:
        return custom, []
    changes = staged(work.connection.alias, work.session.session_id, step_id)
    for change in changes:
        custom = apply_writes(custom, change.writes)
    if changes:
        tell(work, step_id, changes)
        _forget_step(work, step_id, len(changes))
    return custom, changes


def tell(work: UnitOfWork, step_id: str | None, changes: Iterable[StagedChange]) -> None:
    """Log that staged writes were applied."""
    calls = [{"step_id": change.step_id, "tool_call_id": change.tool_call_id} for change in changes]
    work.event("staging_promoted", {"step_id": step_id, "changes": calls})


def discard(work: UnitOfWork) -> bool:
    """Discard the staged writes of the locked session; returns whether there were any."""
    count = work.session.staged_count
    _forget(work, count)
    return bool(count)


def discard_step(work: UnitOfWork, step_id: str) -> None:
    """Discard the staged writes of a step of the locked session."""
    if work.session.staged_count:
        _forget_step(work, step_id, len(staged(work.connection.alias, work.session.session_id, step_id)))


def _forget_step(work: UnitOfWork, step_id: str | None, count: int) -> None:
    if step_id is None:
        _forget(work, count)
    else:
        _forget(work, count, ("step_id", "=", step_id))


def _forget(work: UnitOfWork, count: int, *conditions: tuple[str, str, Any]) -> None:
    if count:
        work.delete(models.StagedChange, *conditions)
        work.change(staged_count=work.session.staged_count - count)
