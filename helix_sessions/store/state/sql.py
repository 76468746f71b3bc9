"""The statements of states."""

from functools import cache

from helix_sessions.models import AgentRecord, Session, StateSnapshot
from helix_sessions.store.engine.dialect import Dialect
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.session_rows import present
from helix_sessions.store.engine.tables import table

_SNAPSHOT = ("number", "base", "document")


@cache
def session_with_snapshots(dialect: Dialect) -> str:
    """The session's row and the snapshots its document is made of, as of one moment."""
    sessions, states = table(Session), table(StateSnapshot)
    return (
        f"SELECT {sessions.selection(dialect, ALL_COLUMNS, 's.')},"  # noqa: S608
        f" {states.selection(dialect, _SNAPSHOT, 'd.')}"
        f" FROM {sessions.name} s LEFT JOIN {states.name} d"
        ' ON d."session_id" = s."session_id" AND d."number" BETWEEN s."state_base" AND s."state_number"'
        f' WHERE s."session_id" = %s AND {present("s.")} ORDER BY d."number"'
    )


@cache
def snapshots(dialect: Dialect) -> str:
    """A range of a session's snapshots."""
    states = table(StateSnapshot)
    return (
        f"SELECT {states.selection(dialect, _SNAPSHOT)} FROM {states.name}"  # noqa: S608
        ' WHERE "session_id" = %s AND "number" BETWEEN %s AND %s ORDER BY "number"'
    )


@cache
def agent(dialect: Dialect) -> str:
    """The agent of a session, all columns."""
    found = table(AgentRecord)
    return f'SELECT {found.selection(dialect, found.columns)} FROM {found.name} WHERE "session_id" = %s'  # noqa: S608
