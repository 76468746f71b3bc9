"""What goes wrong, grouped by cause: errors by fingerprint, silent runs, sessions without a worker, calls
that wait, full inboxes, requests to stop that no worker takes, expired sessions that are not cleaned up."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Max, Min, OuterRef, Subquery
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from helix_sessions.admin import decryption, presentation
from helix_sessions.admin.base import stored
from helix_sessions.admin.filters import stuck_since
from helix_sessions.admin.now.cause import Cause, most_of, series_of
from helix_sessions.admin.now.windows import Window
from helix_sessions.conf import conf
from helix_sessions.models import Input, Session, Worker
from helix_sessions.store.driving.workers import ALIVE
from helix_sessions.store.state import pending_calls

MOST_CAUSES = 12
"""So many errors are shown; the rest are counted."""
MOST_ROWS = 1_000
"""So many rows of a kind are looked at one by one."""
MOST_CALLS = 300
"""So many sessions that wait are looked into, those that wait longest."""
LATE = timedelta(minutes=1)
"""A session that could run and that no worker takes for so long is late."""
FULL = 0.8
"""The share of `INBOX_LIMIT` from which on an inbox is full."""
NO_ERROR = "none"


def causes(window: Window, now: datetime) -> list[Cause]:
    """Every trouble, that with most sessions first within its kind; last what workers are about to do."""
    found: list[Cause] = []
    for read in (_errors, _silent, _queued, _calls, _inboxes, _stopping, _expired):
        found += sorted(read(window, now), key=lambda cause: -cause.count)
    return sorted(found, key=lambda cause: cause.kind == "busy")


def _errors(window: Window, now: datetime) -> Iterator[Cause]:
    """The failures of the window by the fingerprint of their error: when, and by which agents, each one query
    out of the index alone; and one for the last example of each."""
    failures = stored(Session).filter(status="failed", status_since__gte=window.start(now)).order_by()
    by_step = (
        failures.annotate(step=window.step_of("status_since"))
        .values_list("error_fingerprint", "step")
        .annotate(count=Count("*"), first=Min("status_since"), last=Max("status_since"))
    )
    found: defaultdict[str | None, _Failures] = defaultdict(_Failures)
    for fingerprint, step, count, first, last in by_step:
        found[fingerprint].add(step, count, first, last)
    by_agent = failures.values_list("error_fingerprint", "agent_type").annotate(count=Count("*"))
    for fingerprint, agent_type, count in by_agent:
        if fingerprint in found:  # and did not fail just now
            found[fingerprint].agents[agent_type] += count
    most = sorted(found, key=lambda fingerprint: -found[fingerprint].steps.total())
    shown, left = most[:MOST_CAUSES], [found[fingerprint] for fingerprint in most[MOST_CAUSES:]]
    examples = _examples({fingerprint: found[fingerprint].last for fingerprint in shown})
    for fingerprint in shown:
        those, session = found[fingerprint], examples.get(fingerprint)
        text = presentation.reason(session) if session is not None else ""
        yield Cause(
            key=f"error-{fingerprint or NO_ERROR}",
            kind="failed",
            title=text or _("Failed without an error"),
            count=those.steps.total(),
            since=those.first,
            last=those.last,
            agents=those.agents.most_common(),
            series=window.series(those.steps, now),
            example=session.session_id if session is not None else "",
            query=urlencode({"cause": fingerprint or NO_ERROR, "within": window.name}),
            remedies=("retry", "change_model_and_retry"),
        )
    if left:
        title = ngettext("%d more cause", "%d more causes", len(left)) % len(left)
        yield Cause(
            key="error-others",
            kind="failed",
            title=title,
            count=sum(those.steps.total() for those in left),
            since=min(those.first for those in left),
            agents=most_of(pair for those in left for pair in those.agents.items()),
            query=urlencode({"status": "failed", "within": window.name}),
        )


_NEVER = datetime.max.replace(tzinfo=UTC)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class _Failures:
    """Those of one cause."""

    steps: Counter[datetime] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    first: datetime = _NEVER
    last: datetime = _LONG_AGO

    def add(self, step: datetime, count: int, first: datetime, last: datetime) -> None:
        self.steps[step] += count
        self.first, self.last = min(self.first, first), max(self.last, last)


def _examples(last: dict[str | None, datetime]) -> dict[str | None, Session]:
    """The session that failed last of each cause."""
    columns = ("session_id", "error_fingerprint", "error", "failure_reason", "status")
    rows = stored(Session).filter(status="failed", status_since__in=set(last.values())).only(*columns)
    found: dict[str | None, Session] = {}
    for session in rows[:MOST_ROWS]:
        if session.error_fingerprint in last:
            found[session.error_fingerprint] = decryption.settle(session)
    return found


def _silent(window: Window, now: datetime) -> Iterator[Cause]:
    sign = Coalesce("last_agent_activity_at", "updated_at")
    stuck = stored(Session).stuck(stuck_since()).annotate(sign=sign).order_by()
    rows = list(stuck.values_list("session_id", "agent_type", "lease_owner", "sign")[: MOST_ROWS + 1])
    if not rows:
        return
    shown = rows[:MOST_ROWS]
    signs = [last for _id, _type, _owner, last in shown]
    newest = max(shown, key=lambda row: row[3])[0]
    dead = Counter(owner for _id, _type, owner, _last in shown).most_common(1)[0][0]
    yield Cause(
        key="stuck",
        kind="stuck",
        title=_("Runs without a sign of their agent for %d minutes") % conf.STUCK_MINUTES,
        detail=_("Last driven by %s.") % dead if dead else _("No worker has them."),
        count=len(shown),
        is_bounded=len(rows) > MOST_ROWS,
        since=min(signs),
        last=max(signs),
        agents=most_of((agent_type, 1) for _id, agent_type, _owner, _last in shown),
        series=series_of(window, signs, now),
        example=newest,
        query="is=stuck",
        remedies=("interrupt", "fail"),
    )


def _queued(window: Window, now: datetime) -> Iterator[Cause]:
    late = stored(Session).runnable(now).filter(runnable_at__lte=now - LATE, run_id__isnull=True).order_by()
    rows = list(late.values_list("session_id", "agent_type", "runnable_at")[: MOST_ROWS + 1])
    by_agent: defaultdict[str, list[tuple[str, datetime]]] = defaultdict(list)
    for session_id, agent_type, since in rows[:MOST_ROWS]:
        by_agent[agent_type].append((session_id, since))
    drivers: Counter[str] = _drivers(now) if rows else Counter()
    for agent_type, found in by_agent.items():
        times = [since for _id, since in found]
        workers = drivers[agent_type] + drivers["*"]
        about = _behind(agent_type, workers) if workers else _without_worker(agent_type)
        yield Cause(
            key=f"queued-{agent_type}",
            **about,
            count=len(found),
            is_bounded=len(rows) > MOST_ROWS,
            since=min(times),
            last=max(times),
            agents=[(agent_type, len(found))],
            series=series_of(window, times, now),
            example=max(found, key=lambda each: each[1])[0],
            query=urlencode({"cause": "queued", "agent": agent_type}),
        )


def _drivers(now: datetime) -> Counter[str]:
    """How many workers that are alive drive each agent type."""
    alive = stored(Worker).heard_since(now - ALIVE).values_list("agents", flat=True)
    return Counter(agent_type for agents in alive for agent_type in agents)


def _without_worker(agent_type: str) -> dict[str, Any]:
    return {
        "kind": "queued",
        "title": _("Ready to run, and no worker takes them: %s") % agent_type,
        "detail": _("No worker that is alive drives this agent type."),
    }


def _behind(agent_type: str, workers: int) -> dict[str, Any]:
    detail = ngettext(
        "%d worker drives this agent type and has other work first, or CONCURRENCY holds them back.",
        "%d workers drive this agent type and have other work first, or CONCURRENCY holds them back.",
        workers,
    )
    return {
        "kind": "busy",
        "title": _("Ready to run for more than a minute: %s") % agent_type,
        "detail": detail % workers,
    }


def _calls(window: Window, now: datetime) -> Iterator[Cause]:
    """Calls that wait for a person or a client, by tool. Those that wait longest are read."""
    columns = ("session_id", "agent_type", "waiting_since", "pending_client_tool_calls")
    awaiting = stored(Session).waiting().filter(awaiting_client=True).only(*columns)
    rows = list(awaiting[: MOST_CALLS + 1])
    found: dict[tuple[str, str], Cause] = {}
    times: defaultdict[tuple[str, str], list[datetime]] = defaultdict(list)
    for session in rows[:MOST_CALLS]:
        calls = decryption.settle(session).pending_client_tool_calls
        for _id, call in pending_calls.unanswered(calls):
            key = (str(call.get("kind") or ""), str(call.get("tool_name") or "?"))
            asked = presentation.moment(call.get("requested_at")) or session.waiting_since or now
            times[key].append(asked)
            before = found.get(key) or _call_cause(*key)
            newer = before.last is None or asked > before.last
            found[key] = replace(
                before,
                count=before.count + 1,
                since=min(asked, before.since or asked),
                last=max(asked, before.last or asked),
                agents=[*before.agents, (session.agent_type, 1)],
                example=session.session_id if newer else before.example,
            )
    for key, cause in found.items():
        yield replace(
            cause,
            agents=most_of(cause.agents),
            series=series_of(window, times[key], now),
            is_bounded=len(rows) > MOST_CALLS,
            detail=_ages(times[key], now),
        )


def _ages(moments: list[datetime], now: datetime) -> str:
    """How many of them are old, and how old."""
    days = sum(moment < now - timedelta(days=1) for moment in moments)
    hours = sum(moment < now - timedelta(hours=1) for moment in moments) - days
    told = ((days, _("%d for more than a day")), (hours, _("%d for more than an hour")))
    return ", ".join(words % count for count, words in told if count)


def approval_of(tool: str) -> Cause:
    """The calls of a tool that wait for an approval, before they are counted."""
    return _call_cause("approval", tool)


def _call_cause(kind: str, tool: str) -> Cause:
    approval = kind == "approval"
    title = _("Approval of %s") if approval else _("An answer to %s")
    return Cause(
        key=f"call-{kind}-{tool}",
        kind="waiting",
        title=title % tool,
        count=0,
        since=None,
        query=urlencode({"is": "waiting", "tool": tool}),
        place=urlencode({"tool": tool}),
        call=tool,
        remedies=("approve_calls", "deny_calls") if approval else (),
    )


def _inboxes(window: Window, now: datetime) -> Iterator[Cause]:
    most = max(round(conf.INBOX_LIMIT * FULL), 1)
    # The counts out of the index of pending inputs alone; then the first and the last of those that are
    # nearly full, a probe each.
    counts = stored(Input).pending().order_by().values("session_id").annotate(count=Count("*"))
    full = dict(counts.filter(count__gte=most).values_list("session_id", "count")[: MOST_ROWS + 1])
    if not full:
        return
    keys = sorted(full)[:MOST_ROWS]
    fullest = max(keys, key=full.__getitem__)
    of_session = stored(Input).pending().filter(session_id=OuterRef("session_id")).values("created_at")
    rows = (
        stored(Session)
        .filter(session_id__among=keys)
        .annotate(
            first=Subquery(of_session.order_by("admitted_seq")[:1]),
            last=Subquery(of_session.order_by("-admitted_seq")[:1]),
        )
        .values_list("agent_type", "first", "last")
    )
    found = [row for row in rows if row[1] is not None]  # taken in the meantime
    times = [last for _type, _first, last in found]
    yield Cause(
        key="inbox",
        kind="inbox",
        title=_("Inboxes that are nearly full"),
        detail=_("The fullest holds %(count)d of at most %(limit)d inputs.")
        % {"count": full[fullest], "limit": conf.INBOX_LIMIT},
        count=len(keys),
        is_bounded=len(full) > MOST_ROWS,
        since=min((first for _type, first, _last in found), default=None),
        last=max(times, default=None),
        agents=most_of((agent_type, 1) for agent_type, _first, _last in found),
        series=series_of(window, times, now),
        example=fullest,
        query="cause=inbox",
        remedies=("run",),
    )


def _stopping(window: Window, now: datetime) -> Iterator[Cause]:
    asked = stored(Session).interrupted_by_request().filter(interrupt_requested_at__lt=now - LATE)
    yield from _by_moment(
        window,
        now,
        asked,
        "interrupt_requested_at",
        key="stopping",
        kind="stopping",
        title=_("Asked to stop, and no worker has taken the request"),
        query="is=stopping",
        remedies=("fail",),
    )


def _expired(window: Window, now: datetime) -> Iterator[Cause]:
    yield from _by_moment(
        window,
        now,
        stored(Session).expired(now),
        "expires_at",
        key="expired",
        kind="expired",
        title=_("Expired, and not cleaned up"),
        detail=_("cleanup_sessions does it; so does Expire."),
        query="is=expired",
        remedies=("expire", "set_expiry"),
    )


def _by_moment(window: Window, now: datetime, rows: Any, column: str, **about: Any) -> Iterator[Cause]:
    """One cause of rows by the moment in a column, the oldest first."""
    found = list(rows.order_by(column).values_list("session_id", "agent_type", column)[: MOST_ROWS + 1])
    if not found:
        return
    shown = found[:MOST_ROWS]
    times = [moment for _id, _type, moment in shown]
    yield Cause(
        count=len(shown),
        is_bounded=len(found) > MOST_ROWS,
        since=min(times),
        last=max(times),
        agents=most_of((agent_type, 1) for _id, agent_type, _moment in shown),
        series=series_of(window, times, now),
        example=shown[-1][0],
        **about,
    )
