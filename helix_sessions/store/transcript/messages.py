"""The transcript: append, read pages."""

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidCursor, SessionNotFound
from helix_sessions.models import Message
from helix_sessions.store.engine import cursors, inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_rows import SessionRow, check_owner
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.transcript import sql
from helix_sessions.types import UNSET, AppendResult, MessagePage, MessageTexts
from helix_sessions.types import Messages as MessageList

_PAGE_COLUMNS = ("message_count", "version", "owner_id")


_EVERYTHING = 2**60
"""More than any transcript has, and far from overflowing in the database's arithmetic."""


def append_messages(
    store: Store,
    session_id: str,
    messages: MessageList,
    *,
    run_id: str | None = None,
    expected_version: int | None = None,
) -> AppendResult:
    """Append messages to the transcript."""
    checked = inputs.messages(messages)
    run = inputs.optional_identifier(run_id, "run_id")

    def append(work: UnitOfWork) -> None:
        for role, text in checked:
            work.message(role, text, run_id=UNSET if run is None else run)
        if any(role in ("assistant", "tool") for role, _ in checked):
            work.note_activity()

    work, _ = store._decide(session_id, append, expected_version)
    session = work.session
    return AppendResult(
        first_position=session.message_count - len(checked),
        message_count=session.message_count,
        version=session.version,
        head_seq=session.head_seq,
    )


def get_messages(
    store: Store, session_id: str, *, offset: int = 0, limit: int | None = None, newest_first: bool = False
) -> MessagePage:
    """Read a range of the transcript, exactly as given; `offset` counts from the end it starts at."""
    found = get_message_texts(store, session_id, offset=offset, limit=limit, newest_first=newest_first)
    return MessagePage(
        messages=documents.load_all(found.texts),
        total=found.total,
        has_more=offset + len(found.texts) < found.total,
    )


def get_message_texts(
    store: Store,
    session_id: str,
    *,
    offset: int = 0,
    limit: int | None = None,
    newest_first: bool = False,
    cursor: str | None = None,
) -> MessageTexts:
    """`get_messages` as JSON texts, for callers that pass them on unparsed. A cursor stays at
    its place in the transcript, while an offset from the end moves with each new message."""
    start = min(inputs.integer(offset, "offset"), _EVERYTHING)
    most = _EVERYTHING if limit is None else min(inputs.integer(limit, "limit"), _EVERYTHING)
    backwards = inputs.flag(newest_first, "newest_first")
    place = None if cursor is None else _place(cursor, backwards)
    if place is None:
        bounds = [start, start + most]
    else:
        bounds = [place - most, place] if backwards else [place, place + most]
    key, connection = session_key(session_id), store._connection
    page = sql.messages(store._dialect, backwards, backwards and place is None)
    rows = fetch(connection, page, [*bounds, key])
    if not rows:
        raise SessionNotFound(session_id=session_id)
    row = SessionRow.read(key, _PAGE_COLUMNS, rows[0][:3])
    check_owner(key, row, store._owner)
    total: int = row.message_count
    end = total - start if place is None else place
    after = end - most if backwards else bounds[1]
    more = most > 0 and (after > 0 if backwards else after < total)
    return MessageTexts(
        texts=[opened(key, *found[3:]) for found in rows if found[3] is not None],
        total=total,
        version=row.version,
        next_cursor=cursors.encode("messages", _direction(backwards), after) if more else None,
    )


def get_message_count(store: Store, session_id: str) -> int:
    """How many messages the transcript has."""
    return int(store._read(session_id, ("message_count",)).message_count)


def opened(session_id: str, text: str, position: int, seq: int) -> str:
    """The content of a message as it was given."""
    return table(Message).open_text("content", text, session_id, position, seq)


def _direction(newest_first: bool) -> str:
    return "newest" if newest_first else "oldest"


def _place(cursor: str, newest_first: bool) -> int:
    direction, place = cursors.decode("messages", cursor, str, int)
    if direction != _direction(newest_first) or not 0 <= place < _EVERYTHING:
        raise InvalidCursor
    return int(place)
