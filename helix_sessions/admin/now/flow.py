"""How the work goes: runs that end and fail, how long runs, model calls and tools take, and the cost."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Count, Q
from django.utils import dateformat, timezone
from django.utils.translation import gettext as _

from helix_sessions.admin import decryption
from helix_sessions.admin.base import stored
from helix_sessions.admin.now.windows import Window
from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidDocument
from helix_sessions.messages.usage import Usage
from helix_sessions.models import Event, Run, RunTally
from helix_sessions.models.fields import beginning_of, size_of
from helix_sessions.store.maintenance.run_tallies import SLOT

SAMPLED_RUNS = 1_000
"""Durations and cost are those of so many of the newest runs."""
COUNTED_RUNS = 200_000
"""So many runs are counted in one look where no worker has tallied them, the newest."""
TRACED_RUNS = 50
"""Model calls and tools are those of so many of the newest runs."""
TRACED_EVENTS = 3_000
DATA_READ = 2_000
"""So many characters of an event tell a tool's name."""
NAMES_SHOWN = 6

CHART_WIDTH = 560.0
CHART_HEIGHT = 96.0

_STARTS = ("model_called", "tool_called")
_ENDS = ("assistant_message", "model_call_failed", "tool_responded", "tool_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The runs that ended in a step of the chart, as two parts of a bar."""

    at: datetime
    ended: int
    failed: int
    x: float
    width: float
    height: float
    failed_height: float

    @property
    def y(self) -> float:
        """Where the whole bar begins."""
        return CHART_HEIGHT - self.height

    @property
    def failed_y(self) -> float:
        """Where the failed part begins, which is at the bottom."""
        return CHART_HEIGHT - self.failed_height

    @property
    def inner(self) -> float:
        """Its width without the gap between two bars."""
        return max(self.width - (2 if self.width > 12 else 1), 1.0)

    @property
    def middle(self) -> float:
        """Where its label is."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Runs that ended."""

    steps: list[Step]
    ended: int
    failed: int
    highest: int
    labels: list[Step]
    is_cut: bool = False
    """Older runs of the window were not counted."""

    @property
    def share(self) -> float:
        """How many of a hundred failed."""
        return 100 * self.failed / self.ended if self.ended else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How long things of a kind take."""

    name: str
    kind: str
    count: int
    median: timedelta | None
    slow: timedelta | None
    """Ninety-five of a hundred are faster."""
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What something cost."""

    name: str
    usage: Usage
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """What the sampled runs used, by time, model and agent."""

    total: Usage
    runs: int
    is_sample: bool
    by_step: list[Spent] = field(default_factory=list)
    by_model: list[Spent] = field(default_factory=list)
    by_agent: list[Spent] = field(default_factory=list)


def throughput(window: Window, now: datetime) -> Throughput:
    """The runs that ended, step by step: what was tallied, and the rest out of the index of ends alone."""
    ended: Counter[datetime] = Counter()
    failed: Counter[datetime] = Counter()
    start = window.start(now)
    tallies = [] if window.step < SLOT else _tallies(start)
    for slot, in_all, lost in tallies:
        step = window.floor(slot)
        ended[step] += in_all
        failed[step] += lost
    before, after = (tallies[0][0], tallies[-1][0] + SLOT) if tallies else (start, start)
    is_behind = window.step >= SLOT and after < now - timedelta(hours=1)
    oldest = _oldest_counted(start, after) if is_behind else None
    is_cut = oldest is not None
    start, after = (oldest, max(after, oldest)) if oldest is not None else (start, after)
    for step, status, count in _untallied(window, start, before, after):
        ended[step] += count
        failed[step] += count if status == "failed" else 0
    moments = window.steps(now)
    highest = max([1, *ended.values()])
    width = CHART_WIDTH / len(moments)
    steps = [
        Step(
            at=moment,
            ended=ended[moment],
            failed=failed[moment],
            x=number * width,
            width=width,
            height=CHART_HEIGHT * ended[moment] / highest,
            failed_height=CHART_HEIGHT * failed[moment] / highest,
        )
        for number, moment in enumerate(moments)
    ]
    every = max(len(steps) // 6, 1)
    return Throughput(
        steps=steps,
        ended=ended.total(),
        failed=failed.total(),
        highest=highest if ended else 0,
        labels=steps[every // 2 :: every],
        is_cut=is_cut,
    )


def _tallies(start: datetime) -> list[tuple[datetime, int, int]]:
    rows = stored(RunTally).filter(slot__gte=start).order_by("slot")
    return list(rows.values_list("slot", "ended", "failed"))


def _oldest_counted(start: datetime, after: datetime) -> datetime | None:
    """Where counting begins, if more runs ended since workers tallied last than are counted."""
    ends = stored(Run).filter(ended_at__gte=max(start, after)).order_by("-ended_at")
    found: datetime | None = ends.values_list("ended_at", flat=True)[COUNTED_RUNS : COUNTED_RUNS + 1].first()
    return found


def _untallied(window: Window, start: datetime, before: datetime, after: datetime) -> Any:
    """What ended from `after` on, and before `before` where workers have not tallied the whole window yet."""
    ends = Q(ended_at__gte=after)
    if before > start:
        ends |= Q(ended_at__gte=start, ended_at__lt=before)
    return (
        stored(Run)
        .filter(ends)
        .annotate(step=window.step_of("ended_at"))
        .order_by()
        .values_list("step", "status")
        .annotate(count=Count("*"))
    )


def sampled_runs(window: Window, now: datetime) -> list[dict[str, Any]]:
    """The newest runs that ended in the window, one more than are sampled if there are."""
    columns = ("session_id", "run_id", "status", "started_at", "ended_at", "usage")
    rows = stored(Run).filter(ended_at__gte=window.start(now)).order_by("-ended_at")
    places = ("start_sequence", "end_sequence", "session__agent_type")
    return list(rows.values(*columns, *places)[: SAMPLED_RUNS + 1])


def speeds(runs: list[dict[str, Any]]) -> list[Speed]:
    """How long runs take, and the model calls and tools of the newest of them."""
    sample = runs[:SAMPLED_RUNS]
    whole = [run["ended_at"] - run["started_at"] for run in sample]
    failed = sum(run["status"] == "failed" for run in sample)
    found = [_speed(_("Runs"), "run", whole, failed)]
    models, tools = _traced(runs[:TRACED_RUNS])
    if models:
        found.append(_speed(_("Model calls"), "model", *_both(models)))
    slowest = sorted(tools.items(), key=lambda item: -len(item[1]))[:NAMES_SHOWN]
    return found + [_speed(name, "tool", *_both(spans)) for name, spans in slowest]


def money(window: Window, now: datetime, runs: list[dict[str, Any]]) -> Money:
    """What the sampled runs used. A report that names no model is of none."""
    total = Usage()
    steps: defaultdict[datetime, Usage] = defaultdict(Usage)
    by_model: defaultdict[str, Usage] = defaultdict(Usage)
    by_agent: defaultdict[str, Usage] = defaultdict(Usage)
    counted = [run for run in runs[:SAMPLED_RUNS] if isinstance(run["usage"], dict)]
    for run in counted:
        model = run["usage"].get("model")
        name = model if isinstance(model, str) and model else _("not reported")
        places = (total, steps[window.floor(run["ended_at"])], by_model[name])
        for place in (*places, by_agent[run["session__agent_type"]]):
            place.add(run["usage"])
    form = "j M" if window.step >= timedelta(days=1) else "H:i"
    named = {_moment(moment, form): usage for moment, usage in sorted(steps.items(), reverse=True)}
    return Money(
        total=total,
        runs=len(counted),
        is_sample=len(runs) > SAMPLED_RUNS,
        by_step=_spent(named, sort=False),
        by_model=_spent(by_model),
        by_agent=_spent(by_agent),
    )


def _moment(moment: datetime, form: str) -> str:
    return dateformat.format(timezone.localtime(moment), form)


def _spent(usages: dict[str, Usage], *, sort: bool = True) -> list[Spent]:
    def weight(usage: Usage) -> float:
        return usage.cost or usage.tokens / 1e9

    names = sorted(usages, key=lambda name: -weight(usages[name])) if sort else list(usages)
    most = max((weight(usage) for usage in usages.values()), default=0) or 1
    return [
        Spent(name=name, usage=usages[name], width=100 * weight(usages[name]) / most)
        for name in names[:NAMES_SHOWN]
    ]


Spans = list[tuple[timedelta, bool]]


def _both(spans: Spans) -> tuple[list[timedelta], int]:
    return [span for span, _failed in spans], sum(failed for _span, failed in spans)


def _speed(name: str, kind: str, spans: list[timedelta], failed: int) -> Speed:
    ordered = sorted(spans)
    return Speed(
        name=name,
        kind=kind,
        count=len(ordered),
        median=percentile(ordered, 50),
        slow=percentile(ordered, 95),
        failed=failed,
    )


def percentile(ordered: list[timedelta], share: int) -> timedelta | None:
    """The least of the spans that is not below `share` of a hundred of them."""
    if not ordered:
        return None
    return ordered[max(-(-len(ordered) * share // 100) - 1, 0)]


def _traced(runs: Iterable[dict[str, Any]]) -> tuple[Spans, dict[str, Spans]]:
    """The model calls and the tools of runs, each from its event to that of its answer. One query: a range of
    the log for each run."""
    places = [
        Q(session_id=run["session_id"], seq__gt=run["start_sequence"], seq__lte=run["end_sequence"])
        for run in runs
        if run["end_sequence"] is not None
    ]
    if not places:
        return [], {}
    rows = list(
        stored(Event)
        .filter(reduce(or_, places), type__in=(*_STARTS, *_ENDS))
        .order_by("session_id", "seq")
        .values(
            *("session_id", "seq", "type", "created_at"),
            text=beginning_of("data", DATA_READ),
            size=size_of("data"),
        )[:TRACED_EVENTS]
    )
    models: Spans = []
    tools: defaultdict[str, Spans] = defaultdict(list)
    asked: dict[str, datetime] = {}
    called: dict[tuple[str, str], tuple[str, datetime]] = {}
    for row in rows:
        session_id, kind, at = row["session_id"], row["type"], row["created_at"]
        if kind == "model_called":
            asked[session_id] = at
        elif kind in ("assistant_message", "model_call_failed"):
            if (began := asked.pop(session_id, None)) is not None:
                models.append((at - began, kind != "assistant_message"))
        else:
            decryption.open_beginnings(Event, session_id, [row], "data", DATA_READ)
            call_id, name = _call_of(row["text"])
            if kind == "tool_called":
                called[session_id, call_id] = (name, at)
            elif (call := called.pop((session_id, call_id), None)) is not None:
                tools[call[0]].append((at - call[1], kind == "tool_error"))
    return models, tools


def _call_of(text: str | None) -> tuple[str, str]:
    """The id and the tool of a call, which are the first keys of its event."""
    try:
        data = documents.load(text or "{}")
    except (InvalidDocument, ValueError):
        data = _first_keys(text or "")
    if not isinstance(data, dict):
        return "", ""
    return str(data.get("tool_call_id") or ""), str(data.get("tool_name") or "")


def _first_keys(text: str) -> dict[str, str]:
    """The first texts of an object whose end was cut off."""
    found = {}
    for key in ("tool_call_id", "tool_name"):
        _before, _quote, rest = text.partition(f'"{key}":')
        found[key] = rest.lstrip().removeprefix('"').partition('"')[0] if rest else ""
    return found
