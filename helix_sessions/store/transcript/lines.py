"""The line of a checkpoint: the transcript as it was then.

Its first messages may still be in the present transcript. Those that were truncated since, by a rewind or
otherwise, are read from the log's rows and appended again, by a rewind to the same session and by a branch to
the new one. What replaced them is of another line.
"""

from typing import NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.exceptions import EventsArchived
from helix_sessions.models import ContextUpdate, Message
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.transcript import messages, sql


class Hidden(NamedTuple):
    """A message that was truncated since."""

    role: str
    text: str
    is_update: bool
    """Whether it is an update of the context."""


class Line(NamedTuple):
    """How many of its messages the present transcript begins with, and the messages after them."""

    common: int
    hidden: list[Hidden]


def present(session: SessionRow, most: int | None = None) -> Line:
    """The present transcript, or the first messages of it."""
    count: int = session.message_count
    return Line(count if most is None else min(count, most), [])


def at(
    connection: BaseDatabaseWrapper,
    session: SessionRow,
    *,
    seq: int,
    message_count: int,
    most: int | None = None,
) -> Line:
    """The line of a checkpoint of a session, or the first messages of it. The event `seq` recorded it.

    Raises `EventsArchived` when hidden messages went with the events that an archive took.
    """
    count = message_count if most is None else min(message_count, most)
    common = _still_visible(connection, session, seq, count)
    hidden = _hidden_since(connection, session.session_id, seq, common, count) if common < count else []
    if common + len(hidden) < count:
        raise EventsArchived(first_available_seq=session.first_seq)
    return Line(common, hidden)


def append(work: UnitOfWork, line: Line) -> None:
    """Append the hidden messages of a line to a transcript that has the others."""
    for role, text, is_update in line.hidden:
        position = work.session.message_count
        seq = work.message(role, text)
        if is_update:
            work.insert(ContextUpdate, seq=seq, position=position)


def _still_visible(connection: BaseDatabaseWrapper, session: SessionRow, seq: int, count: int) -> int:
    visible = Message.objects.using(connection.alias).visible()
    later = visible.filter(session_id=session.session_id, position__lt=count, seq__gt=seq)
    first = later.order_by("position").values_list("position", flat=True).first()
    return min(count, session.message_count) if first is None else first


def _hidden_since(
    connection: BaseDatabaseWrapper, session_id: str, seq: int, common: int, count: int
) -> list[Hidden]:
    place = [session_id, common, count, seq, seq]
    found = fetch(connection, sql.hidden_messages(dialect_of(connection)), place)
    return [
        Hidden(role, messages.opened(session_id, text, position, number), bool(is_update))
        for role, text, position, number, is_update in found
    ]
