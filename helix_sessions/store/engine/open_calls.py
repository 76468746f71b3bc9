"""The tool calls of a transcript that have no result yet, kept with the session's row.

`Session.open_calls` is followed as messages are appended, so whoever has to know what is open, to heal it or
to fail it, reads the locked row and no message, however long the transcript is. It says what
`transcripts.open_tool_calls` would say of the whole transcript: a result answers the earliest open call of
its id. Where messages leave the transcript the list is worked out again, from whichever is shorter: what
stays, or what goes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents
from helix_sessions.content.encryption import SEALED
from helix_sessions.models import Message
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.tables import table
from helix_sessions.transcripts import INTERRUPTED, calls_in, results_in

_PAGE = 500


class OpenCall(NamedTuple):
    """A call without a result: its id, the tool's name, and where it was made: the message, and in it."""

    id: str
    name: str
    position: int
    place: int


def read(text: str | None) -> list[OpenCall]:
    """The open calls of a session's row, in the order they were made."""
    return [] if text is None else [OpenCall(*call) for call in documents.load(text)]


def write(calls: list[OpenCall]) -> str | None:
    """The open calls as the session's row keeps them."""
    return documents.write(calls) if calls else None


def after(text: str | None, role: str, content: str, position: int) -> str | None:
    """What is open after one more message. Most messages neither call nor answer, and are not parsed."""
    if role == "assistant":
        if '"tool_' not in content:
            return text
    elif text is None or not (role == "tool" or (role == "user" and '"tool_result"' in content)):
        return text
    return write(_follow(read(text), [(position, documents.load(content))]))


def at(
    connection: BaseDatabaseWrapper, session_id: str, text: str | None, count: int, kept: int
) -> str | None:
    """What is open in the first `kept` of `count` messages, where `text` is open in all of them."""
    if kept >= count:
        return text
    if kept <= count - kept:
        return write(_follow([], _range(connection, session_id, 0, kept)))
    still_open = [call for call in read(text) if call.position < kept]
    reopened = _reopened(connection, session_id, count, kept, still_open)
    return write(sorted([*still_open, *reopened], key=attrgetter("position", "place")))


def error_result(call: OpenCall) -> dict[str, Any]:
    """The tool message for a call that nobody will answer any more."""
    return {
        "role": "tool",
        "tool_call_id": call.id,
        "tool_name": call.name,
        "content": INTERRUPTED,
        "is_error": True,
    }


def _follow(calls: list[OpenCall], messages: Iterable[tuple[int, Any]]) -> list[OpenCall]:
    for position, message in messages:
        made = enumerate(calls_in(message))
        calls.extend(OpenCall(call["id"], call["name"], position, place) for place, call in made)
        for call_id in results_in(message):
            answered = next((call for call in calls if call.id == call_id), None)
            if answered is not None:
                calls.remove(answered)
    return calls


def _reopened(
    connection: BaseDatabaseWrapper, session_id: str, count: int, kept: int, still_open: list[OpenCall]
) -> Iterator[OpenCall]:
    """The calls before `kept` whose results come after it, found walking back from there."""
    made: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for _, message in _range(connection, session_id, kept, count):
        made.update(call["id"] for call in calls_in(message))
        for call_id in results_in(message):
            if made[call_id]:
                made[call_id] -= 1
            else:
                wanted[call_id] += 1
    known = {(call.position, call.place) for call in still_open}
    answered: Counter[str] = Counter()
    end = kept
    while end > 0 and +wanted:
        start = max(0, end - _PAGE)
        for position, message in reversed(list(_range(connection, session_id, start, end))):
            answered.update(results_in(message))
            for place, call in reversed(list(enumerate(calls_in(message)))):
                call_id = call["id"]
                if (position, place) in known:
                    continue
                if answered[call_id]:
                    answered[call_id] -= 1
                elif wanted[call_id]:
                    wanted[call_id] -= 1
                    yield OpenCall(call_id, call["name"], position, place)
        end = start


def _range(
    connection: BaseDatabaseWrapper, session_id: str, start: int, end: int
) -> Iterator[tuple[int, Any]]:
    """The messages of a range that may call or answer, with their positions."""
    for first in range(start, end, _PAGE):
        parameters = [session_id, first, min(end, first + _PAGE)]
        for position, seq, content in fetch(connection, _range_sql(connection.vendor), parameters):
            text = table(Message).open_text("content", content, session_id, position, seq)
            yield position, documents.load(text)


@cache
def _range_sql(vendor: str) -> str:
    messages = table(Message)
    content, find = ('"content"::text', "strpos") if vendor == "postgresql" else ('"content"', "instr")
    return (
        f"SELECT {messages.selection(vendor, ['position', 'seq', 'content'])} FROM {messages.name}"  # noqa: S608
        ' WHERE "session_id" = %s AND "position" >= %s AND "position" < %s AND "truncated_seq" IS NULL'
        f" AND ({find}({content}, '\"tool_') > 0 OR substr({content}, 1, 1) = '{SEALED}')"
        ' ORDER BY "position"'
    )
