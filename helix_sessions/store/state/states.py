"""The state: loaded, saved, merged."""

from collections.abc import Iterable
from functools import cache
from typing import Any, cast

from helix_sessions.content import documents
from helix_sessions.exceptions import ModeLocked, SessionNotFound
from helix_sessions.models import Session, StateSnapshot
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_rows import ALL_COLUMNS, SessionRow, check_owner
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.tombstones import present
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import checkpoints, snapshots, state_rows
from helix_sessions.types import JSON, UNSET, CheckpointMeta, SessionState
from helix_sessions.writes import apply_writes, parse_writes


@cache
def _load_sql(vendor: str) -> str:
    """The row and the snapshots its document is made of, as of one moment."""
    sessions, states = table(Session), table(StateSnapshot)
    return (
        f"SELECT {sessions.selection(vendor, ALL_COLUMNS, 's.')},"  # noqa: S608
        f" {states.selection(vendor, ('number', 'base', 'document'), 'd.')}"
        f" FROM {sessions.name} s LEFT JOIN {states.name} d"
        ' ON d."session_id" = s."session_id" AND d."number" BETWEEN s."state_base" AND s."state_number"'
        f' WHERE s."session_id" = %s AND {present("s.")} ORDER BY d."number"'
    )


def load_state(store: Store, session_id: str) -> SessionState:
    """The session as it is now."""
    connection = store._connection
    rows = fetch(connection, _load_sql(connection.vendor), [session_key(session_id)])
    if not rows:
        raise SessionNotFound(f"There is no session {session_id!r}.")
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
    """Write what the caller owns of the state, and a checkpoint of it."""
    columns, text = state_rows.owned_columns(state), state_rows.custom_state(state)
    with store._write(session_id, expected_version) as work:
        put(work, state, columns)
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
    """Make what the caller owns of a state the session's, apart from the custom state."""
    session = work.session
    if cast(object, state.mode) is not UNSET and state.mode != session.mode:
        raise ModeLocked(f"The mode is {session.mode!r} and cannot become {inputs.shown(state.mode)}.")
    before = session.status
    known = vars(session)
    # What stays is left out: SQLite writes every index of a column that is set, to whatever value.
    work.change(**{name: value for name, value in columns.items() if known.get(name, UNSET) != value})
    if columns["status"] != before:
        work.change(status_since=work.now)
        work.event("status_changed", {"from": before, "to": columns["status"]})
