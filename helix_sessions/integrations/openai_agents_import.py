"""Moves sessions over from the OpenAI Agents SDK's own databases, those of `SQLiteSession`,
`AsyncSQLiteSession` and `SQLAlchemySession`, which have the same tables."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from helix_sessions.exceptions import InvalidInput, SessionExists
from helix_sessions.integrations import sql
from helix_sessions.integrations.openai_agents import AGENT_TYPE, message_of
from helix_sessions.store import SessionStore

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def import_sessions(
    connection: Any,
    session_ids: Iterable[str] | None = None,
    *,
    store: SessionStore | None = None,
    sessions_table: str = "agent_sessions",
    messages_table: str = "agent_messages",
    agent_type: str = AGENT_TYPE,
    **fields: Any,
) -> list[str]:
    """Copy sessions with all their items; all sessions of the database if none is named.

    `connection` is one of the DB-API: of `sqlite3`, of a PostgreSQL driver, or an SQLAlchemy engine's
    `raw_connection()`. `fields` are those of `create_session`. The items of a session are copied whole or not
    at all, and one that has messages here already is left alone, so that an import that was interrupted can
    be repeated. Returns the sessions that were copied.
    """
    tables = [sessions_table, messages_table]
    if not all(_NAME.fullmatch(table) for table in tables):
        raise InvalidInput("The names of tables are letters, digits and underscores.")
    source = _Source(connection, *tables)
    target = SessionStore() if store is None else store
    wanted = source.ids() if session_ids is None else list(map(str, session_ids))
    options = {"agent_type": agent_type, **fields}
    return [name for name in wanted if _import(source, target, name, options)]


def _import(source: "_Source", target: SessionStore, name: str, fields: dict[str, Any]) -> bool:
    messages = [message_of(item) for item in source.items(name)]
    if not messages:
        return False
    with suppress(SessionExists):
        target.create_session(name, **fields)
    head = target.get_session_head(name)
    if head.message_count or head.agent_type != fields["agent_type"]:
        return False
    target.append_messages(name, messages, expected_version=head.version)
    return True


class _Source:
    """Tables of the SDK."""

    def __init__(self, connection: Any, sessions: str, messages: str) -> None:
        self._connection = connection
        self._sessions = sessions
        self._messages = messages

    def ids(self) -> list[str]:
        return [row[0] for row in self._rows(sql.session_ids(self._sessions))]

    def items(self, session_id: str) -> list[Any]:
        query = sql.items(self._messages, self._mark)
        return [json.loads(row[0]) for row in self._rows(query, session_id)]

    def _rows(self, query: str, *values: str) -> list[Any]:
        cursor = self._connection.cursor()
        try:
            cursor.execute(query, values)
            return list(cursor.fetchall())
        finally:
            cursor.close()

    @property
    def _mark(self) -> str:
        """The placeholder of the driver."""
        driver = type(getattr(self._connection, "driver_connection", None) or self._connection)
        return "?" if driver.__module__.partition(".")[0] in ("sqlite3", "_sqlite3") else "%s"
