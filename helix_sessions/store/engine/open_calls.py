"""The tool calls of a transcript that have no result yet, kept with the session's row.

`Session.open_calls` is updated with each message, so an operation that repairs or fails open calls reads the
locked row and no message, however long the transcript is. It is what `transcripts.open_tool_calls` returns
for the whole transcript: a result answers the earliest open call of its id. When messages leave the
transcript the list is computed again, from the shorter part: the messages that stay, or those that go.
"""

from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents
from helix_sessions.content.encryption import SEALED
from helix_sessions.messages.tool_ledger import (
    OpenCall,
    closing_message,
    follow_open_calls,
    may_call_or_answer,
    reopened_calls,
)
from helix_sessions.models import Message
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import Dialect, dialect_of
from helix_sessions.store.engine.tables import table

_PAGE = 500


def read(text: str | None) -> list[OpenCall]:
    """The open calls of a session's row, in the order they were made."""
    return [] if text is None else [OpenCall(*call) for call in documents.load(text)]


def write(calls: list[OpenCall]) -> str | None:
    """The open calls as the session's row keeps them."""
    return documents.write(calls) if calls else None


def after(text: str | None, role: str, content: str, position: int) -> str | None:
    """What is open after one more message. Most messages neither call nor answer, and are not parsed."""
    if (text is None and role != "assistant") or not may_call_or_answer(role, content):
        return text
    return write(follow_open_calls(read(text), [(position, documents.load(content))]))


def at(
    connection: BaseDatabaseWrapper, session_id: str, text: str | None, count: int, kept: int
) -> str | None:
    """What is open in the first `kept` of `count` messages, where `text` is open in all of them."""
    if kept >= count:
        return text
    if kept <= count - kept:
        return write(follow_open_calls([], _range(connection, session_id, 0, kept)))
    still_open = [call for call in read(text) if call.position < kept]
    removed = _range(connection, session_id, kept, count)
    reopened = reopened_calls(removed, _backwards(connection, session_id, kept), still_open)
    return write(sorted([*still_open, *reopened], key=attrgetter("position", "place")))


def closing_messages(text: str | None) -> list[dict[str, Any]]:
    """Results for the open calls of a session's row, in the order of the calls."""
    return [closing_message(call._asdict()) for call in read(text)]


def _backwards(connection: BaseDatabaseWrapper, session_id: str, end: int) -> Iterator[tuple[int, Any]]:
    for last in range(end, 0, -_PAGE):
        yield from reversed(list(_range(connection, session_id, max(0, last - _PAGE), last)))


def _range(
    connection: BaseDatabaseWrapper, session_id: str, start: int, end: int
) -> Iterator[tuple[int, Any]]:
    """The messages of a range that may call or answer, with their positions."""
    for first in range(start, end, _PAGE):
        parameters = [session_id, first, min(end, first + _PAGE)]
        for position, seq, content in fetch(connection, _range_sql(dialect_of(connection)), parameters):
            text = table(Message).open_text("content", content, session_id, position, seq)
            yield position, documents.load(text)


@cache
def _range_sql(dialect: Dialect) -> str:
    messages, content = table(Message), dialect.as_text('"content"')
    calls = dialect.contains(content, '"tool_')
    return (
        f"SELECT {messages.selection(dialect, ['position', 'seq', 'content'])} FROM {messages.name}"  # noqa: S608
        ' WHERE "session_id" = %s AND "position" >= %s AND "position" < %s AND "truncated_seq" IS NULL'
        f" AND ({calls} OR substr({content}, 1, 1) = '{SEALED}')"
        ' ORDER BY "position"'
    )
