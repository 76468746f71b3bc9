"""What a call sends to the database; Django's log of queries would change the way it takes."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from helix_sessions.store import SessionStore

MESSAGE = {"role": "user", "content": "hello"}


def needs_memory() -> None:
    """Skip where rows are not remembered: where something pools the connections of these tests."""
    if connections["default"].settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        pytest.skip("behind a pooler nothing is remembered")


def sent_by(call: Callable[[], Any], using: str = "default") -> list[str]:
    """The statements of a call."""
    statements: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    with connections[using].execute_wrapper(note):
        call()
    return statements


def reads_the_row(store: SessionStore, session_id: str = "s") -> bool:
    """Whether a write has to read the session's row first."""
    sent = sent_by(lambda: store.append_messages(session_id, [MESSAGE]), store.using)
    return any(sql.startswith("SELECT") and '"helix_sessions_session"' in sql for sql in sent)


def assert_gapless(store: SessionStore, session_id: str = "s") -> None:
    """Every event once and in order, the head among them, and a message for each position."""
    state = store.load_state(session_id)
    events = store.get_events(session_id, limit=10_000)
    assert [event.seq for event in events] == list(range(1, state.head_seq + 1))
    assert len(store.get_messages(session_id).messages) == state.message_count
    found = store.examine_sessions(session_ids=[session_id], deep=True)
    assert [finding for finding in found if finding.severity == "error"] == []
