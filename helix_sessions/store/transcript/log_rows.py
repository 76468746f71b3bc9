"""Rows of the event log as every reader selects them: an event with its data; that of a message is with the
message, and both may be sealed."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from helix_sessions.content.encryption import SEALED
from helix_sessions.models import Event, Message
from helix_sessions.store.engine.tables import table

DATA = 2
"""The place of the data in a row."""


@cache
def selection(vendor: str) -> str:
    """The columns seq, type, data as text, turn, run and time of an event `e` with its message `m`, and the
    message's position."""
    cast = "::text" if vendor == "postgresql" else ""
    return (
        f'e."seq", e."type", COALESCE(e."data", m."content"){cast},'
        ' e."turn_id", e."run_id", e."created_at", e."message_position"'
    )


MESSAGE = (
    f'LEFT JOIN {table(Message).name} m ON m."session_id" = e."session_id"'
    ' AND m."position" = e."message_position" AND m."seq" = e."seq"'
)
"""The message `m` of an event `e`."""


def opened(session_id: str, rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """The rows, sealed data opened."""
    return [
        row if (data := row[DATA]) is None or not data.startswith(SEALED) else _opened(session_id, row)
        for row in rows
    ]


def _opened(session_id: str, row: Sequence[Any]) -> Sequence[Any]:
    seq, kind, data, *rest = row
    return (seq, kind, opened_data(session_id, seq, rest[-1], data), *rest)


def opened_data(session_id: str, seq: int, position: int | None, text: str) -> str:
    """The data of one event; with a position, they are the message there."""
    if position is None:
        return table(Event).open_text("data", text, session_id, seq)
    return table(Message).open_text("content", text, session_id, position, seq)
