"""The statements of the runtime's sessions."""

from functools import cache

from helix_sessions.models import AgentRecord, Message, Session
from helix_sessions.store.engine.dialect import Dialect
from helix_sessions.store.engine.tables import table


@cache
def session_with_agent(dialect: Dialect, columns: tuple[str, ...]) -> str:
    """Columns of a session's row, then its agent's row."""
    sessions, agents = table(Session), table(AgentRecord)
    return (
        f"SELECT {sessions.selection(dialect, columns, 's.')},"  # noqa: S608
        f" {agents.selection(dialect, agents.columns, 'a.')}"
        f' FROM {sessions.name} s LEFT JOIN {agents.name} a ON a."session_id" = s."session_id"'
        ' WHERE s."session_id" = %s'
    )


@cache
def messages_then(dialect: Dialect) -> str:
    """The transcript as it was at an event: what was truncated since is still there."""
    messages = table(Message)
    return (
        f"SELECT {messages.selection(dialect, ('session_id', 'position', 'seq', 'content'))}"  # noqa: S608
        f' FROM {messages.name} WHERE "session_id" = %s AND "position" < %s AND "seq" <= %s'
        ' AND ("truncated_seq" IS NULL OR "truncated_seq" > %s) ORDER BY "position"'
    )
