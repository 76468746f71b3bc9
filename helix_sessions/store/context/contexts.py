"""What the model sees of a session: reconciled with its sources, read, moved with the session."""

from collections.abc import Iterable
from dataclasses import replace

from helix_sessions.content import documents
from helix_sessions.exceptions import SessionBusy, SessionNotFound
from helix_sessions.models import ContextEpoch, ContextUpdate, Session
from helix_sessions.store.context import context_rows, epochs
from helix_sessions.store.context.epochs import Plan, StoredEpoch
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_rows import ALL_COLUMNS, SessionRow, check_owner, check_row_version
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import snapshots, state_rows, states
from helix_sessions.types import (
    JSON,
    ContextOutcome,
    ContextSource,
    ModelContext,
    SessionState,
    chars_over_four,
)
from helix_sessions.types import ContextEpoch as Epoch

_ATTEMPTS = 20


def reconcile_context(
    store: Store, session_id: str, sources: Iterable[ContextSource], *, expected_version: int | None = None
) -> ContextOutcome:
    """Observe the sources, and tell the model what has changed since it was told last.

    The sources are asked once, in order, before anything is locked. The first time their texts become
    the baseline; `ContextUnavailable` if one is not available. Later, what changed, was added or is
    gone becomes one system message. After a compaction the baseline is rendered afresh, unless a source
    is unavailable.
    """
    key, version = session_key(session_id), inputs.expected_version(expected_version)
    named = epochs.checked(sources)
    state = states.load_state(store, key)
    if version is not None:
        check_row_version(SessionRow(("version", "status"), (state.version, state.status)), version)
    observations = epochs.observe(named, state)
    for _ in range(_ATTEMPTS):
        epoch, compaction = context_rows.stored(store._connection, key)
        compacted = epoch is not None and compaction > epoch.compaction_number
        plan = epochs.plan(epoch, observations, compacted)
        if epoch is not None and plan.baseline is None and not plan.changes:
            return _outcome(plan, epoch.baseline, epoch.baseline_seq)
        with store._write(key, version) as work:
            if context_rows.stored(work.connection, key) == (epoch, compaction):
                return _carry_out(work, plan, epoch, compaction)
    raise SessionBusy(f"The context of session {key!r} changed faster than it could be read.")


def get_context(store: Store, session_id: str) -> ModelContext:
    """What the model sees: the baseline, the latest compaction if there is one, and the messages after
    it. Of the updates of the context those since the baseline are seen, wherever they are."""
    key, connection = session_key(session_id), store._connection
    rows = fetch(connection, context_rows.context_sql(connection.vendor), [key] * 3)
    if not rows:
        raise SessionNotFound(f"There is no session {session_id!r}.")
    (_, _, owner_id, baseline), *rest = rows
    decode = table(Session).decoder(("owner_id",))
    check_owner(key, SessionRow(("owner_id",), decode([owner_id])), store._owner)
    seen = ModelContext(
        baseline=""
        if baseline is None
        else documents.load(table(ContextEpoch).open_text("baseline", baseline, key)),
        messages=documents.load_all(
            [context_rows.opened(key, place, number, text) for place, number, _, text in rest]
        ),
    )
    return replace(seen, estimated_tokens=chars_over_four(seen))


def get_context_epoch(store: Store, session_id: str) -> Epoch | None:
    """What the model was told before the conversation, and knows since; `None` before the first time."""
    key = session_key(session_id)
    store._read(key, ("session_id",))
    epoch, _ = context_rows.stored(store._connection, key)
    return None if epoch is None else epochs.public(epoch.baseline, epoch.baseline_seq, epoch.admitted)


def move_session(
    store: Store, session_id: str, location: JSON, *, expected_version: int | None = None
) -> SessionState:
    """Say where the session is from now on. What the model was told about the old place is forgotten: the
    next reconciliation begins afresh. Who was driving the session no longer may."""
    text = inputs.document(location)
    with store._write(session_id, expected_version, columns=ALL_COLUMNS) as work:
        session = work.session
        before = None if session.location is None else documents.load(session.location)
        work.change(
            location=text,
            fence=session.fence + 1,
            lease_owner=None,
            lease_token=None,
            lease_expires_at=None,
        )
        work.delete(ContextEpoch)
        work.event("session_moved", {"from": before, "to": location})
        custom = snapshots.read(work.connection, session.session_id, session.state_base, session.state_number)
    return state_rows.state_of(work.session, custom)


def _outcome(plan: Plan, baseline: str, baseline_seq: int) -> ContextOutcome:
    return ContextOutcome(kind=plan.kind, epoch=epochs.public(baseline, baseline_seq, plan.admitted))


def _carry_out(work: UnitOfWork, plan: Plan, epoch: StoredEpoch | None, compaction: int) -> ContextOutcome:
    if epoch is None or plan.baseline is not None:
        return _render(work, plan, epoch, compaction)
    position, seq = work.session.message_count, None
    if plan.text:
        seq = work.message("system", documents.dump({"role": "system", "content": plan.text}))
        work.insert(ContextUpdate, seq=seq, position=position, before=epoch.snapshot)
    work.event("context_updated", text=documents.dump({"message_seq": seq, "changes": plan.changes}))
    work.update(ContextEpoch, {}, snapshot=documents.dump(plan.admitted), updated_at=work.now)
    return _outcome(plan, epoch.baseline, epoch.baseline_seq)


def _render(work: UnitOfWork, plan: Plan, epoch: StoredEpoch | None, compaction: int) -> ContextOutcome:
    baseline = plan.baseline or ""
    public = epochs.public(baseline, 0, plan.admitted)
    text = documents.dump({"baseline": baseline, "snapshot": public.snapshot})
    if epoch is None:
        seq = work.event("context_initialized", text=text)
    else:
        seq = work.event("context_replaced", text=text)
    columns = {
        "baseline": documents.dump(baseline),
        "snapshot": documents.dump(plan.admitted),
        "baseline_seq": seq,
        "baseline_position": work.session.message_count,
        "compaction_number": compaction,
        "updated_at": work.now,
    }
    if epoch is None:
        work.insert(ContextEpoch, **columns)
    else:
        work.update(ContextEpoch, {}, **columns)
    work.statement(
        f'UPDATE {table(ContextUpdate).name} SET "before" = NULL'  # noqa: S608
        ' WHERE "session_id" = %s AND "before" IS NOT NULL',
        [work.session.session_id],
    )
    return _outcome(plan, baseline, seq)
