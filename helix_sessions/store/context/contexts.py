"""The context of a session: reconcile it with its sources, read it, reset it on a move."""

from collections.abc import Iterable
from dataclasses import replace

from helix_sessions.content import documents
from helix_sessions.exceptions import SessionBusy
from helix_sessions.models import ContextEpoch, ContextUpdate
from helix_sessions.store.context import context_rows, epochs, sql
from helix_sessions.store.context.context_reads import read_context
from helix_sessions.store.context.context_tallies import tallies
from helix_sessions.store.context.epochs import Observation, Plan, StoredEpoch
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.session_rows import SessionRow, check_row_version
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import ownership
from helix_sessions.store.state import snapshots, state_rows, states
from helix_sessions.types import (
    JSON,
    ContextOutcome,
    ContextSource,
    ModelContext,
    SessionState,
)
from helix_sessions.types import ContextEpoch as Epoch

_ATTEMPTS = 20


def reconcile_context(
    store: Store, session_id: str, sources: Iterable[ContextSource], *, expected_version: int | None = None
) -> ContextOutcome:
    """Observe the sources, and give the model what has changed since the last time.

    The sources are observed once, in order, before anything is locked. The first time their texts become
    the baseline; `ContextUnavailable` if one is not available. Later, changed, added and removed sources
    become one system message. After a compaction the baseline is rendered again, unless a source is
    unavailable.
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
            return _measured(_outcome(plan, epoch.baseline, epoch.baseline_seq), observations, epoch)
        with store._write(key, version) as work:
            current = context_rows.stored(work.connection, key) == (epoch, compaction)
            outcome = _carry_out(work, plan, epoch, compaction) if current else None
        if outcome is not None:
            return _counted(_measured(outcome, observations, epoch), plan, epoch)
    raise SessionBusy(f"The context of session {key!r} changed faster than it could be read.")


def get_context(store: Store, session_id: str, *, model: str | None = None) -> ModelContext:
    """What the model sees: the baseline, the latest compaction if there is one, and the messages after
    it. Of the updates of the context those since the baseline are seen, wherever they are.

    A `model` gets no native reasoning of another: assistant messages whose `model` is not this one are
    without it. Results of tools are at most `MAX_TOOL_OUTPUT` long.
    """
    return read_context(store, session_id, model=model).context


def get_context_epoch(store: Store, session_id: str) -> Epoch | None:
    """The baseline of the model's context and its values; `None` before the first reconciliation."""
    key = session_key(session_id)
    store._read(key, ("session_id",))
    epoch, _ = context_rows.stored(store._connection, key)
    return None if epoch is None else epochs.public(epoch.baseline, epoch.baseline_seq, epoch.admitted)


def move_session(
    store: Store, session_id: str, location: JSON, *, expected_version: int | None = None
) -> SessionState:
    """Set the location of the session. The context of the old location is reset: the next reconciliation
    starts again. The present owner of the session is fenced."""
    text = inputs.document(location)
    with store._write(session_id, expected_version, columns=ALL_COLUMNS) as work:
        session = work.session
        before = None if session.location is None else documents.load(session.location)
        work.change(location=text)
        ownership.fence(work)
        work.is_drivers = False  # a driver that moves its session leaves it to one at the new place
        ownership.interrupt(work, "session_moved")
        work.delete(ContextEpoch)
        work.event("session_moved", {"from": before, "to": location})
        custom = snapshots.read(work.connection, session.session_id, session.state_base, session.state_number)
    return state_rows.state_of(work.session, custom)


def _measured(
    outcome: ContextOutcome, observations: list[Observation], epoch: StoredEpoch | None
) -> ContextOutcome:
    """With how long the sources took, which were missing, and how much updates take. Those of this call are
    added by `_carry_out`."""
    kept = 0 if epoch is None or outcome.kind in ("initialized", "replaced") else epoch.update_characters
    return replace(
        outcome,
        observed={seen.key: seen.seconds for seen in observations},
        unavailable=[seen.key for seen in observations if not seen.available],
        update_characters=outcome.update_characters + kept,
    )


def _counted(outcome: ContextOutcome, plan: Plan, epoch: StoredEpoch | None) -> ContextOutcome:
    """Count what was committed."""
    if plan.baseline is not None:
        replaced = None if epoch is None else epoch.update_characters
        tallies.rendered(len(plan.baseline), replaced=replaced)
    elif plan.text:
        tallies.updated(len(plan.text))
    return outcome


def _outcome(plan: Plan, baseline: str, baseline_seq: int) -> ContextOutcome:
    return ContextOutcome(kind=plan.kind, epoch=epochs.public(baseline, baseline_seq, plan.admitted))


def _carry_out(work: UnitOfWork, plan: Plan, epoch: StoredEpoch | None, compaction: int) -> ContextOutcome:
    if epoch is None or plan.baseline is not None:
        return _render(work, plan, epoch, compaction)
    position, seq, text = work.session.message_count, None, ""
    if plan.text:
        text = documents.dump({"role": "system", "content": plan.text})
        seq = work.message("system", text)
        work.insert(ContextUpdate, seq=seq, position=position, before=epoch.snapshot)
    work.event("context_updated", text=documents.dump({"message_seq": seq, "changes": plan.changes}))
    work.update(ContextEpoch, {}, snapshot=documents.dump(plan.admitted), updated_at=work.now)
    return replace(_outcome(plan, epoch.baseline, epoch.baseline_seq), update_characters=len(text))


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
    work.statement(sql.FORGET_UPDATES, [work.session.session_id])
    return _outcome(plan, baseline, seq)
