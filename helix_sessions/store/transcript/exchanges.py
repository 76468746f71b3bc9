"""The exchange that a session is in: the last message of a user, and where its answer begins in the log."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Max

from helix_sessions.content import documents
from helix_sessions.models import Event, Message
from helix_sessions.store.engine import cursors
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import Row, table
from helix_sessions.store.transcript.messages import get_messages, opened
from helix_sessions.types import JSON, Page

_PAGES_OF_ONE_EXCHANGE = 5
_SPEAKERS = ("user", "assistant")


class Exchange(NamedTuple):
    """A message of a user that is in the transcript."""

    position: int
    message: dict[str, Any]
    answered_from: int
    """The event after which its answer is: its own, or that of a rewind to it."""


def find(store: Store, session_id: str, *, message_id: str | None = None) -> Exchange | None:
    """The last message of a user, or that with an id; `None` if there is none."""
    store._read(session_id, ("session_id",))
    rows = Message.objects.using(store.using).filter(session_id=session_id)
    asked = rows.visible().filter(role="user").order_by("-position")
    for row in asked.iterator(chunk_size=20):
        if message_id is None or row.content.get("id", f"message-{row.position}") == message_id:
            undone = rows.filter(position__gt=row.position).aggregate(last=Max("truncated_seq"))["last"]
            return Exchange(row.position, row.content, max(row.seq, undone or 0))
    return None


def last_words(
    connection: BaseDatabaseWrapper, session_id: str, after: int = 0, unwritten: Iterable[Row] = ()
) -> JSON:
    """What the agent of a session said last, after an event, unless it was asked since. `unwritten`: the
    messages that are about to be stored."""
    found = table(Message)
    rows = [dict(zip(found.columns, row, strict=True)) for row in unwritten]
    spoken = [row for row in rows if row["role"] in _SPEAKERS]
    if spoken:
        last = spoken[-1]
        message = documents.load(opened(session_id, last["content"], last["position"], last["seq"]))
        return message.get("content") if last["role"] == "assistant" else None
    stored = Message.objects.using(connection.alias).filter(session_id=session_id, role__in=_SPEAKERS)
    row = stored.visible().order_by("-position").first()
    if row is None or row.role != "assistant" or row.seq < after:
        return None
    return row.content.get("content")


def page(
    store: Store, session_id: str, *, limit: int, cursor: str | None = None
) -> Page[tuple[int, dict[str, Any]]]:
    """The newest messages with their positions, in order, or those before them. A page begins with a message
    of a user, unless one exchange is much longer than a page."""
    before = None if cursor is None else cursors.decode("exchanges", cursor, int)[0]
    total = get_messages(store, session_id, limit=1).total
    end = total if before is None else max(0, min(before, total))
    start = end
    found: list[dict[str, Any]] = []
    for _ in range(_PAGES_OF_ONE_EXCHANGE):
        first = max(0, start - limit)
        found[:0] = get_messages(store, session_id, offset=first, limit=start - first).messages
        start = first
        if start == 0 or any(message["role"] == "user" for message in found):
            break
    cut = next((place for place, message in enumerate(found) if message["role"] == "user"), 0)
    if start + cut > 0:
        start, found = start + cut, found[cut:]
    else:
        start = 0
    return Page(
        items=list(enumerate(found, start)),
        next_cursor=cursors.encode("exchanges", start) if start > 0 else None,
    )


def turns(store: Store, session_id: str, first: int) -> dict[int, tuple[int, str | None]]:
    """The messages of the agent from a position on: the event of each, and its turn, if that is still in
    the log."""
    rows = Message.objects.using(store.using).filter(session_id=session_id, position__gte=first)
    said = dict(rows.visible().filter(role="assistant").order_by("position").values_list("position", "seq"))
    logged = Event.objects.using(store.using).filter(session_id=session_id, seq__in=said.values())
    turn_of = dict(logged.values_list("seq", "turn_id"))
    return {position: (seq, turn_of.get(seq)) for position, seq in said.items()}
