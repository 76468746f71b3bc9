"""A run as a waterfall: its turns, model calls, tools and sub-agents as bars on one axis of time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from helix_sessions.admin import humanize
from helix_sessions.admin.base import stored
from helix_sessions.admin.documents import Preview
from helix_sessions.admin.pages.entries import Entry, entries_of
from helix_sessions.admin.pages.timeline import with_messages
from helix_sessions.admin.presentation import Chip, moment, run_chip
from helix_sessions.models import Event, Run, Session

EVENTS = 600
"""So many events of a run are shown; a link leads to the rest."""
CHARACTERS = 4_000
"""So much of each document is read."""
WIDTH = 1_000.0
WAIT = 0.16
"""The share of the axis that the wait after a run has, however long it is."""
TICKS = 5

_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200)
_LONG_STEPS = (1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800, 2592000)

_ENDS_OF_TOOLS = ("tool_responded", "tool_error", "tool_message")


@dataclass(slots=True, kw_only=True)
class Span:
    """One thing that took time."""

    kind: str
    label: str
    depth: int
    start: datetime
    end: datetime | None = None
    is_error: bool = False
    is_wait: bool = False
    note: str = ""
    seq: int | None = None
    went_in: Preview | None = None
    came_out: Preview | None = None
    sub_session_id: str = ""
    x: float = 0.0
    width: float = 0.0

    @property
    def took(self) -> timedelta:
        """From its beginning to its end, or until now."""
        return (self.end or timezone.now()) - self.start

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.end is None

    @property
    def icon(self) -> str:
        """By its kind."""
        return _ICONS[self.kind]


_ICONS = {"run": "play", "turn": "dot", "model": "robot", "tool": "tool", "agent": "tree", "wait": "clock"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A mark of the axis."""

    x: float
    label: str

    @property
    def percent(self) -> float:
        """The same of a hundred: its words are as large on a wide page as on a narrow one."""
        return 100 * self.x / WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLink:
    """A run that can be chosen."""

    turn: int
    chip: Chip
    selected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """One run."""

    turn: int
    run_id: str
    chip: Chip
    spans: list[Span]
    ticks: list[Tick]
    runs: list[RunLink]
    is_cut: bool
    first_seq: int


@dataclass(slots=True)
class _Reader:
    """Makes spans of the entries of a run, in their order."""

    spans: list[Span] = field(default_factory=list)
    turn: Span | None = None
    model: Span | None = None
    retry: Span | None = None
    tools: dict[str, Span] = field(default_factory=dict)
    agents: dict[str, Span] = field(default_factory=dict)

    def read(self, entry: Entry) -> None:
        method = getattr(self, f"_{entry.type}", None)
        if method is not None:
            method(entry)
        for call in entry.calls:
            self._tool(call.call_id, call.name or _("tool"), call.at, call.arguments, entry.seq)
            for event in call.events:
                self._of_call(call.call_id, event)
        if entry.call_id and entry.type in _ENDS_OF_TOOLS:
            self._of_call(entry.call_id, entry)

    def _turn_started(self, entry: Entry) -> None:
        self.turn = self._add("turn", _("Turn %s") % entry.data.get("turn", ""), 1, entry)

    def _turn_finished(self, entry: Entry) -> None:
        if self.turn is not None:
            self.turn.end, self.turn.came_out = entry.at, entry.document
            self.turn = None

    def _model_called(self, entry: Entry) -> None:
        if self.retry is not None:
            self.retry.end, self.retry = entry.at, None
        name = entry.data.get("model")
        attempt = entry.data.get("attempt")
        label = name if isinstance(name, str) and name else _("Model")
        self.model = self._add("model", label, 2, entry)
        self.model.note = _("attempt %s") % attempt if attempt not in (None, 1) else ""

    def _assistant_message(self, entry: Entry) -> None:
        if self.model is not None:
            self.model.end, self.model.came_out = entry.at, entry.document
            self.model = None

    def _model_call_failed(self, entry: Entry) -> None:
        if self.model is not None:
            self.model.end, self.model.came_out, self.model.is_error = entry.at, entry.document, True
            self.model = None
        if entry.data.get("retry_at"):
            self.retry = self._add("wait", _("Waits to try again"), 2, entry)
            self.retry.is_wait, self.retry.end = True, moment(entry.data.get("retry_at"))

    def _subagent_spawned(self, entry: Entry) -> None:
        key = str(entry.data.get("sub_session_id") or "")
        span = self._add("agent", str(entry.data.get("agent_type") or _("Sub-agent")), 2, entry)
        span.sub_session_id, self.agents[key] = key, span

    def _subagent_result(self, entry: Entry) -> None:
        span = self.agents.pop(str(entry.data.get("sub_session_id") or ""), None)
        if span is not None:
            span.end, span.came_out = entry.at, entry.document
            span.is_error = entry.data.get("status") == "failed"

    def _tool(self, call_id: str, name: str, at: datetime, arguments: Preview, seq: int) -> None:
        span = Span(kind="tool", label=name, depth=2, start=at, went_in=arguments, seq=seq)
        self.tools[call_id] = span
        self.spans.append(span)

    def _of_call(self, call_id: str, entry: Entry) -> None:
        span = self.tools.get(call_id)
        if span is None:
            return
        if entry.type == "tool_called":
            span.start = entry.at
        elif span.end is None:
            span.end, span.is_error, span.came_out = entry.at, entry.is_error, entry.outcome

    def _add(self, kind: str, label: str, depth: int, entry: Entry) -> Span:
        span = Span(
            kind=kind, label=label[:120], depth=depth, start=entry.at, went_in=entry.document, seq=entry.seq
        )
        self.spans.append(span)
        return span


def waterfall(session: Session, turn: int | None = None) -> Waterfall | None:
    """A run, by default the newest. Three queries, for a run of any length; `None` before the first run."""
    columns = ("run_id", "turn", "status", "start_sequence", "end_sequence", "started_at", "ended_at")
    rows = stored(Run).filter(session_id=session.session_id).newest_first()
    if turn is not None:
        rows = rows.filter(turn__lte=turn + 4)
    near = list(rows.values(*columns)[:9])
    chosen = next((row for row in near if turn is None or row["turn"] <= turn), None)
    if chosen is None:
        return None
    entries, is_cut = _entries(session, chosen)
    reader = _Reader()
    for entry in entries:
        reader.read(entry)
    after = next((row for row in reversed(near) if row["turn"] > chosen["turn"]), None)
    spans = list(_framed(session, chosen, reader.spans, after))
    ticks = _placed(spans)
    return Waterfall(
        turn=chosen["turn"],
        run_id=chosen["run_id"],
        chip=run_chip(chosen["status"]),
        spans=spans,
        ticks=ticks,
        runs=[
            RunLink(turn=row["turn"], chip=run_chip(row["status"]), selected=row is chosen)
            for row in reversed(near)
        ],
        is_cut=is_cut,
        first_seq=chosen["start_sequence"] + 1,
    )


def _entries(session: Session, run: dict[str, Any]) -> tuple[list[Entry], bool]:
    events: Any = stored(Event).filter(session_id=session.session_id, seq__gt=run["start_sequence"])
    if run["end_sequence"] is not None:
        events = events.filter(seq__lte=run["end_sequence"])
    rows = list(events.in_brief(CHARACTERS).order_by("seq")[: EVENTS + 1])
    return entries_of(with_messages(session.session_id, rows[:EVENTS])), len(rows) > EVENTS


def _framed(
    session: Session, run: dict[str, Any], spans: list[Span], after: dict[str, Any] | None
) -> Iterator[Span]:
    """The run itself, what it holds in the order of time, and the wait after it."""
    failed = run["status"] == "failed"
    ended = run["ended_at"]
    yield Span(
        kind="run",
        label=_("Run %d") % run["turn"],
        depth=0,
        start=run["started_at"],
        end=ended,
        is_error=failed,
        seq=run["start_sequence"] + 1,
    )
    for span in sorted(spans, key=lambda span: (span.start, span.depth, span.seq or 0)):
        if ended is not None and span.end is None and span.kind != "agent":
            span.end = ended
            if str(run["status"]).startswith("suspended") and span.kind == "tool":
                span.is_wait, span.note = True, _("waits for an answer")
        yield span
    if str(run["status"]).startswith("suspended") and ended is not None:
        until = after["started_at"] if after is not None else None
        waits = {"suspended_awaiting_children": _("Waits for sub-sessions")}
        label = waits.get(run["status"], _("Waits for a person or a client"))
        yield Span(kind="wait", label=label, depth=0, start=ended, end=until, is_wait=True)


def _placed(spans: list[Span]) -> list[Tick]:
    """Put each span on the axis, and return the marks of the axis. The wait after the run has a part of its
    own, so that a run of seconds can be seen beside a wait of days."""
    last = spans[-1] if len(spans) > 1 and spans[-1].kind == "wait" and spans[-1].depth == 0 else None
    inner = spans[:-1] if last is not None else spans
    begin, now = inner[0].start, timezone.now()
    end = inner[0].end or now
    if inner[0].end is None:
        end = max([end, *(span.end for span in inner if span.end is not None)])
    whole = max((end - begin).total_seconds(), 0.001)
    room = WIDTH * (1 - WAIT) if last is not None else WIDTH
    for span in inner:
        start = min(max((span.start - begin).total_seconds() / whole, 0.0), 1.0)
        stop = min(max(((span.end or end) - begin).total_seconds() / whole, start), 1.0)
        span.x, span.width = room * start, max(room * (stop - start), 2.0)
        span.x = min(span.x, WIDTH - span.width)
    if last is not None:
        last.x, last.width = room, WIDTH - room
    return list(_ticks(whole, room))


def _ticks(whole: float, room: float) -> Iterator[Tick]:
    step = next((step for step in (*_STEPS, *_LONG_STEPS) if whole / step <= TICKS), whole)
    at = 0.0
    while at <= whole * 0.98:
        label = "0" if not at else humanize.duration(timedelta(seconds=at))
        yield Tick(x=room * at / whole, label=label)
        at += step
