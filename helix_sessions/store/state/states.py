"""The state: load, save, merge."""

from collections.abc import Iterable
from typing import Any, cast

from helix_sessions.content import documents
from helix_sessions.exceptions import ModeLocked, SessionNotFound
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.session_rows import SessionRow, check_owner
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import checkpoints, runnable, snapshots, sql, state_rows
from helix_sessions.types import JSON, UNSET, CheckpointMeta, SessionState
from helix_sessions.writes import apply_writes, parse_writes


def load_state(store: Store, session_id: str) -> SessionState:
    """Load the state of a session."""
    rows = fetch(store._connection, sql.session_with_snapshots(store._dialect), [session_key(session_id)])
    if not rows:
        raise SessionNotFound(session_id=session_id)
    width = len(ALL_COLUMNS)
    row = SessionRow.read(session_id, ALL_COLUMNS, rows[0][:width])
    check_owner(session_id, row, store._owner)
    custom: dict[str, JSON] = {}
    if row.state_number:
        *_, (_, custom) = snapshots.fold(session_id, (found[width:] for found in rows))
    return state_rows.state_of(row, custom)


def save_state(
    store: Store, session_id: str, state: SessionState, *, expected_version: int | None = None
) -> SessionState:
    """Save what the caller owns of the state, with a checkpoint."""
    columns, text = state_rows.owned_columns(state), state_rows.custom_state(state)
    with store._write(session_id, expected_version) as work:
        put(work, state, columns)
        work.note_activity()
        snapshots.record(work, state.custom_state, text)
        work.event("state_saved", {"step_count": state.step_count})
        checkpoints.record(work, CheckpointMeta(), "save")
    return state_rows.state_of(work.session, documents.load(text))


def merge_custom_state(
    store: Store, session_id: str, writes: Iterable[Any], *, expected_version: int | None = None
) -> SessionState:
    """Apply writes to the stored custom state, all or none."""
    parsed = parse_writes(writes)
    written = documents.dump(parsed)
    with store._write(session_id, expected_version, columns=ALL_COLUMNS) as work:
        session = work.session
        before = snapshots.read(work.connection, session.session_id, session.state_base, session.state_number)
        custom = apply_writes(before, parsed)
        if parsed:
            snapshots.record(work, custom, documents.dump(custom), before=before, writes=parsed)
            work.event("state_merged", text=f'{{"writes":{written}}}')
    return state_rows.state_of(work.session, custom)


def put(work: UnitOfWork, state: SessionState, columns: dict[str, Any]) -> None:
    """Write what the caller owns of a state to the session's row, apart from the custom state."""
    session = work.session
    if cast(object, state.mode) is not UNSET and state.mode != session.mode:
        raise ModeLocked(f"The mode is {session.mode!r} and cannot become {inputs.shown(state.mode)}.")
    before, rested = session.status, runnable.rests_with_inputs(session)
    known = vars(session)
    # What stays is left out: SQLite writes every index of a column that is set, to any value.
    work.change(**{name: value for name, value in columns.items() if known.get(name, UNSET) != value})
    if columns["status"] != before:
        work.change(status_since=work.now)
        work.event("status_changed", {"from": before, "to": columns["status"]})
        if columns["status"] in runnable.STOPPED_STATUSES:
            runnable.forget_request(work)
    waits = (columns["pending_client_tool_calls"], columns["suspended_awaiting_children"])
    if columns["status"] != before or any(map(documents.has_entries, waits)):
        runnable.follow(work, rested=rested)
