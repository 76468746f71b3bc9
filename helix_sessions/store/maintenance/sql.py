"""The statements of maintenance. Those of the doctor are with its invariants."""

from functools import cache

from helix_sessions.content.encryption import SEALED, VEILED, Keyring
from helix_sessions.models import (
    ArchivedRange,
    Event,
    Input,
    Message,
    MessageWords,
    MovedSession,
    Session,
    SubSessionRef,
)
from helix_sessions.store.engine.dialect import Dialect
from helix_sessions.store.engine.tables import Table, table, update_sql
from helix_sessions.types import UNFINISHED_STATUSES

# Rows of a session, page by page: exports, key rotation, the doctor


def page_of_rows(
    dialect: Dialect, rows: Table, columns: tuple[str, ...], *, after: bool, condition: str = ""
) -> str:
    """The rows of a session in a table that fit, in the order of their key, from behind one on."""
    key = rows.key[1:]
    names = ", ".join(f'"{name}"' for name in key)
    some = f" AND ({condition})" if condition else ""
    rest = f" AND ({names}) > ({', '.join(['%s'] * len(key))})" if after else ""
    order = f" ORDER BY {names}" if key else ""
    return (
        f"SELECT {rows.selection(dialect, columns)} FROM {rows.name}"  # noqa: S608
        f' WHERE "session_id" = %s{some}{rest}{order} LIMIT %s'
    )


def sealed(dialect: Dialect, rows: Table) -> str:
    """A condition: something of the row is sealed."""
    return " OR ".join(_begins(dialect, name, SEALED) for name in rows.content)


def stale(dialect: Dialect, rows: Table, ring: Keyring) -> str:
    """A condition: something of the row is not sealed as the ring would seal it now."""
    if ring.active is None:
        wrong = [_begins(dialect, name, SEALED) for name in rows.content]
        wrong += [_begins(dialect, name, VEILED) for name in rows.digests]
    else:
        wrong = [f"NOT {_begins(dialect, name, ring.prefix)}" for name in rows.content]
        wrong += [
            f"(\"{name}\" <> '' AND NOT {_begins(dialect, name, ring.veil_prefix)})" for name in rows.digests
        ]
    return " OR ".join(wrong)  # a column that is null fits neither


def _begins(dialect: Dialect, column: str, text: str) -> str:
    """Key ids are letters, digits, - and _, so the text needs no quoting."""
    stored = dialect.as_text(f'"{column}"')
    return f"(substr({stored}, 1, {len(text)}) = '{text}')"


def remove_from_log(rows: Table, count: int) -> str:
    """Remove so many rows by the numbers of their events."""
    return f'DELETE FROM {rows.name} WHERE "session_id" = %s AND "seq" IN ({", ".join(["%s"] * count)})'  # noqa: S608


# Archives

OLDEST_EVENT = f'SELECT MIN("seq") FROM {table(Event).name} WHERE "session_id" = %s'  # noqa: S608

REMOVE_EVENTS = f'DELETE FROM {table(Event).name} WHERE "session_id" = %s AND "seq" < %s'  # noqa: S608

REMOVE_TRUNCATED_MESSAGES = (
    f'DELETE FROM {table(Message).name} WHERE "session_id" = %s'  # noqa: S608
    ' AND "truncated_seq" IS NOT NULL AND "seq" < %s'
)
"""What was truncated is kept for the log, and goes with it."""

REMOVE_WORDS_OF_NONE = (
    f'DELETE FROM {table(MessageWords).name} AS w WHERE w."session_id" = %s AND w."seq" < %s'  # noqa: S608
    f" AND NOT EXISTS (SELECT 1 FROM {table(Message).name} m"
    ' WHERE m."session_id" = w."session_id" AND m."seq" = w."seq")'
)
"""The words of messages that are gone."""

REMOVE_WORDS = f'DELETE FROM {table(MessageWords).name} WHERE "session_id" = %s'  # noqa: S608


@cache
def messages_without_words(dialect: Dialect) -> str:
    """A page of the messages of a session whose words are not kept, after an event."""
    columns = table(Message).selection(dialect, ("position", "seq", "content"), "m.")
    return (
        f"SELECT {columns} FROM {table(Message).name} m LEFT JOIN {table(MessageWords).name} w"  # noqa: S608
        ' ON w."session_id" = m."session_id" AND w."seq" = m."seq"'
        ' WHERE m."session_id" = %s AND m."seq" > %s AND w."seq" IS NULL ORDER BY m."seq" LIMIT %s'
    )


PLACE_OF_ARCHIVE = (
    f'SELECT "storage", "name" FROM {table(ArchivedRange).name} WHERE "session_id" = %s AND "first_seq" = %s'  # noqa: S608
)

# Moves between cells


def later_than(seq: int) -> str:
    """A condition: the row came after an event."""
    return f'"seq" > {seq:d}'


IS_HIDDEN = f'SELECT 1 FROM {table(MovedSession).name} WHERE "moved_id" = %s'  # noqa: S608

TRUNCATED_MESSAGES = (
    f'SELECT "seq", "truncated_seq" FROM {table(Message).name}'  # noqa: S608
    ' WHERE "session_id" = %s AND "truncated_seq" IS NOT NULL'
)

MARK_MESSAGE = update_sql(Message, ("truncated_seq",), ("session_id", "seq"))


def remove_row(rows: Table) -> str:
    """Remove one row by its key."""
    where = " AND ".join(f'"{name}" = %s' for name in rows.key)
    return f"DELETE FROM {rows.name} WHERE {where}"  # noqa: S608


def rows_with(dialect: Dialect, rows: Table, column: str) -> str:
    """The rows that have a value in a column."""
    selection = rows.selection(dialect, rows.columns)
    return f'SELECT {selection} FROM {rows.name} WHERE "{column}" = %s'  # noqa: S608


# Expiry


@cache
def overdue(dialect: Dialect, of_one_agent_type: bool) -> str:
    """A page of the sessions that have expired and are unfinished. The statuses are part of the text,
    because an engine uses a partial index only when it sees the index's condition; SQLite is told to."""
    hint = dialect.using_index("helix_session_overdue_idx")
    unfinished = ", ".join(f"'{status}'" for status in UNFINISHED_STATUSES)
    return (
        f'SELECT "expires_at", "session_id" FROM {table(Session).name}{hint}'  # noqa: S608
        f' WHERE "expires_at" IS NOT NULL AND "status" IN ({unfinished})'
        ' AND "expires_at" < %s AND ("expires_at", "session_id") > (%s, %s)'
        + (' AND "agent_type" = %s' if of_one_agent_type else "")
        + ' ORDER BY "expires_at", "session_id" LIMIT %s'
    )


# The doctor


def sessions(dialect: Dialect, columns: tuple[str, ...], condition: str) -> str:
    """Columns of the sessions that fit."""
    rows = table(Session)
    return f"SELECT {rows.selection(dialect, columns)} FROM {rows.name} WHERE {condition}"  # noqa: S608


MAY_WAIT = (
    "(waiting_since IS NOT NULL OR awaiting_client OR awaiting_children"
    " OR pending_client_tool_calls IS NOT NULL OR suspended_awaiting_children IS NOT NULL)"
)
MAY_BE_RUNNABLE = (
    "((run_id IS NOT NULL AND runnable_at IS NULL) OR (run_id IS NULL AND (run_requested"
    " OR (pending_inputs > 0 AND runnable_at IS NULL)"
    " OR (runnable_at IS NOT NULL AND waiting_since IS NOT NULL)"
    " OR pending_client_tool_calls IS NOT NULL OR suspended_awaiting_children IS NOT NULL)))"
)


@cache
def pending_admissions(dialect: Dialect) -> str:
    """The events, as far as they are not archived, that admitted the pending inputs of a session."""
    return (
        f'SELECT e."seq", {dialect.as_text("e.data")} FROM {table(Event).name} e'  # noqa: S608
        f' JOIN {table(Input).name} i ON i."session_id" = e."session_id" AND i."admitted_seq" = e."seq"'
        ' WHERE i."session_id" = %s AND i."promoted_seq" IS NULL AND i."cancelled_seq" IS NULL'
    )


OWNS_CALLS = "client_tool_call_ownership IS NOT NULL"
HAS_STATE = "state_number > 0"

HAS_THIS_STATE = f"SELECT 1 FROM {table(Session).name} WHERE session_id = %s AND state_number = %s"  # noqa: S608

# Citus

SPREAD_TABLES = "SELECT logicalrelid::regclass::text FROM pg_dist_partition"

SPREAD_TABLE = "SELECT create_distributed_table(%s::regclass, %s, colocate_with => %s)"

SPREAD_WHOLE_TABLE = "SELECT create_reference_table(%s::regclass)"

KEEP_TABLE = "SELECT citus_add_local_table_to_metadata(%s::regclass)"

CLUSTER_NODES = "SELECT count(*) FROM pg_dist_node WHERE isactive AND shouldhaveshards"

FOREIGN_KEYS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE contype = 'f' AND conparentid = 0
AND conrelid::regclass::text = ANY (%s) AND confrelid::regclass::text = ANY (%s) ORDER BY 1, 2
"""
"""The constraints between these tables."""


def drop_constraint(table_name: str, name: str) -> str:
    return f'ALTER TABLE {table_name} DROP CONSTRAINT "{name}"'


def add_constraint(table_name: str, name: str, definition: str) -> str:
    return f'ALTER TABLE {table_name} ADD CONSTRAINT "{name}" {definition}'


def local_references(condition: str) -> str:
    """The references of sessions to sub-sessions that should be here."""
    name = table(SubSessionRef).name
    return f"SELECT session_id, sub_session_id FROM {name} WHERE {condition} AND location = 'local'"  # noqa: S608
