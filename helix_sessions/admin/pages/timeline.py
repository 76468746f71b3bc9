"""The timeline: all events of a session in the order of their numbers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from django.utils import timezone

from helix_sessions.admin import decryption
from helix_sessions.admin.base import stored
from helix_sessions.admin.documents import CHARACTERS_SHOWN
from helix_sessions.admin.pages.entries import KINDS, Entry, entries_of
from helix_sessions.models import Event, Feedback, Message, Session

PAGE_SIZE = 50
MOST_FEEDBACK = 500
FOLDED = 2
"""So many events of bookkeeping in a row are folded into one line."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The part of a timeline to show; every field is a query parameter."""

    order: str = "newest"
    kind: str = ""
    before: int | None = None
    after: int | None = None
    seq: int | None = None

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "View":
        """Parse the query parameters; invalid ones are ignored."""
        numbers = {name: number(parameters.get(name)) for name in ("before", "after", "seq")}
        return cls(
            order="oldest" if parameters.get("order") == "oldest" else "newest",
            kind=str(parameters.get("kind", "")) if parameters.get("kind") in KINDS else "",
            **numbers,
        )

    def address(self, **changes: Any) -> str:
        """The query string of this view with something else instead."""
        kept = {"order": "" if self.order == "newest" else self.order, "kind": self.kind}
        return "?" + urlencode({name: value for name, value in {**kept, **changes}.items() if value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What a timeline shows in one place: an entry, a day that begins, or bookkeeping to unfold."""

    entry: Entry | None = None
    day: datetime | None = None
    folded: list[Entry] = field(default_factory=list)
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One page of a timeline, and the ways to the others."""

    view: View
    entries: list[Entry]
    first: int | None
    last: int | None
    has_older: bool
    has_newer: bool

    @property
    def is_at_head(self) -> bool:
        """Whether new events belong on this page."""
        return not self.has_newer and not self.view.kind

    @property
    def older(self) -> str:
        """The page before."""
        return self.view.address(before=self.first) if self.has_older else ""

    @property
    def newer(self) -> str:
        """The page after."""
        return self.view.address(after=self.last) if self.has_newer else ""

    @property
    def newest_first(self) -> str:
        """The same from the end."""
        return self.view.address(order="")

    @property
    def oldest_first(self) -> str:
        """The same from the beginning."""
        return self.view.address(order="oldest")

    @property
    def blocks(self) -> list[Block]:
        """The entries with a line between two days, and bookkeeping folded away."""
        return list(_blocks(self.entries, self.view))

    @property
    def kinds(self) -> list[dict[str, Any]]:
        """The links to the parts of a timeline."""
        return [
            {
                "label": label,
                "address": self.view.address(kind=name),
                "selected": name == self.view.kind,
            }
            for name, (label, _types) in KINDS.items()
        ]


def timeline(session: Session, view: View) -> Timeline:
    """A page of a session's log. Two queries, regardless of what the page holds."""
    upwards, rows = _rows(session, view)
    more = len(rows) > PAGE_SIZE
    rows = sorted(rows[:PAGE_SIZE], key=lambda row: int(row["seq"]))
    first, last = (rows[0]["seq"], rows[-1]["seq"]) if rows else (None, None)
    begins = session.first_seq
    if upwards:
        has_older, has_newer = first is not None and first > begins, more
    else:
        has_older, has_newer = more, last is not None and last < session.head_seq and view.before is not None
    entries = _told(session, rows)
    return Timeline(
        view=view,
        entries=entries if view.order == "oldest" else entries[::-1],
        first=first,
        last=last,
        has_older=has_older,
        has_newer=has_newer,
    )


def _blocks(entries: list[Entry], view: View) -> Iterator[Block]:
    day = None
    quiet: list[Entry] = []
    for entry in entries:
        today = timezone.localtime(entry.at).date()
        is_quiet = entry.look == "quiet" and not view.kind
        if quiet and (today != day or not is_quiet):
            yield from _folded(quiet, view)
            quiet = []
        if today != day:
            day = today
            yield Block(day=entry.at)
        if is_quiet:
            quiet.append(entry)
        else:
            yield Block(entry=entry)
    yield from _folded(quiet, view)


def _folded(entries: list[Entry], view: View) -> Iterator[Block]:
    """Several in a row are one line; a permanent link to one of them unfolds it."""
    if len(entries) < FOLDED:
        yield from (Block(entry=entry) for entry in entries)
    else:
        yield Block(folded=entries, is_open=view.seq in {entry.seq for entry in entries})


def _told(session: Session, rows: list[Row]) -> list[Entry]:
    """The entries of rows, each with the time since the one before it and what people think of it."""
    entries = entries_of(with_messages(session.session_id, rows))
    answers = {entry.seq: entry for entry in entries if entry.role == "assistant"}
    if answers:
        given = stored(Feedback).filter(session_id=session.session_id, message_seq__in=list(answers))
        for row in given.order_by("message_seq", "author")[:MOST_FEEDBACK]:
            answers[row.message_seq].feedback.append(row)
    for before, entry in pairwise(entries):
        entry.after = entry.at - before.at
    return entries


def newer_entries(session: Session, after: int) -> list[Entry]:
    """What happened after an event, oldest first, at most a page of it."""
    rows = list(_brief(session).filter(seq__gt=after).order_by("seq")[:PAGE_SIZE])
    return _told(session, rows)


def _brief(session: Session) -> Any:
    events: Any = stored(Event).filter(session_id=session.session_id)
    return events.in_brief(CHARACTERS_SHOWN)


def _rows(session: Session, view: View) -> tuple[bool, list[Row]]:
    """A page and one row more, and whether it was read upwards."""
    brief = _brief(session)
    types = KINDS[view.kind][1] if view.kind else ()
    if types:
        brief = brief.filter(type__in=types)
    if view.seq is not None:
        start = max(view.seq - PAGE_SIZE // 2, 0)
        return True, list(brief.filter(seq__gt=start).order_by("seq")[: PAGE_SIZE + 1])
    if view.after is not None:
        return True, list(brief.filter(seq__gt=view.after).order_by("seq")[: PAGE_SIZE + 1])
    if view.before is not None:
        return False, list(brief.filter(seq__lt=view.before).order_by("-seq")[: PAGE_SIZE + 1])
    if view.order == "oldest":
        return True, list(brief.order_by("seq")[: PAGE_SIZE + 1])
    return False, list(brief.order_by("-seq")[: PAGE_SIZE + 1])


def with_messages(session_id: str, rows: list[Row]) -> list[Row]:
    """The rows with their data decrypted, those of messages with the beginning of their message."""
    most = CHARACTERS_SHOWN
    decryption.open_beginnings(Event, session_id, rows, "data", most)
    wanted = {row["message_position"]: row for row in rows if row["message_position"] is not None}
    if not wanted:
        return rows
    seqs = [row["seq"] for row in rows if row["message_position"] is not None]
    found: list[Row] = list(
        stored(Message).filter(session_id=session_id, position__in=list(wanted), seq__in=seqs).in_brief(most)
    )
    decryption.open_beginnings(Message, session_id, found, "content", most)
    messages = {message["seq"]: message for message in found}
    for row in rows:
        message = messages.get(row["seq"])
        if message is not None:
            row.update(
                text=message["text"], size=message["size"], truncated=message["truncated_seq"] is not None
            )
    return rows


def number(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
