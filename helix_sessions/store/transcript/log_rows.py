"""Rows of the event log as every reader selects them: an event with its data; that of a message is with the
message, and both may be sealed."""

from collections.abc import Iterable, Sequence
from typing import Any

from helix_sessions.content.encryption import SEALED
from helix_sessions.models import Event, Message
from helix_sessions.store.engine.tables import table

DATA = 2
"""The place of the data in a row."""


def opened(session_id: str, rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """Decrypt the data of the rows."""
    return [
        row if (data := row[DATA]) is None or not data.startswith(SEALED) else _opened(session_id, row)
        for row in rows
    ]


def _opened(session_id: str, row: Sequence[Any]) -> Sequence[Any]:
    seq, kind, data, *rest = row
    return (seq, kind, opened_data(session_id, seq, rest[-1], data), *rest)


def opened_data(session_id: str, seq: int, position: int | None, text: str) -> str:
    """Decrypt the data of one event; with a position, they are the content of its message."""
    if position is None:
        return table(Event).open_text("data", text, session_id, seq)
    return table(Message).open_text("content", text, session_id, position, seq)
