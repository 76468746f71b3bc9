"""The head of a session's page: one sentence, four numbers, the actions that fit its state, its trace."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from helix_sessions.admin import humanize, presentation
from helix_sessions.admin.action import Action
from helix_sessions.admin.base import stored
from helix_sessions.conf import conf
from helix_sessions.exceptions import ContentUnreadable
from helix_sessions.messages.usage import totals_of
from helix_sessions.models import AgentRecord, Run, Session

MOST_RUNS = 500
"""The time of so many runs is summed."""
BUTTONS = 3

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")

_FITTING = {
    "stuck": ("interrupt", "fail", "run"),
    "running": ("interrupt", "branch", "export"),
    "failed": ("retry", "change_model_and_retry", "rewind", "replay"),
    "waiting": ("interrupt", "set_expiry", "fail"),
    "expired": ("set_expiry", "expire", "run"),
    "paused": ("resume", "retry", "rewind"),
    "interrupted": ("resume", "retry", "rewind"),
    "completed": ("run", "replay", "branch"),
    "active": ("run", "replay", "branch"),
}
"""What an operator most likely wants of a session in this state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The head of the page."""

    tone: str
    headline: str
    took: timedelta | None
    runs: int
    tokens_in: int
    tokens_out: int
    cost: float
    model: str
    trace_url: str

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.tokens_in + self.tokens_out


def overview(session: Session, now: datetime) -> Overview:
    """Two queries by key: what its runs took, and which model it has."""
    used = totals_of(session.usage)
    took, report = _runs(session, now)
    return Overview(
        tone=condition(session, now),
        headline=headline(session, now),
        took=took,
        runs=session.turn_count,
        tokens_in=used.input_tokens,
        tokens_out=used.output_tokens,
        cost=used.cost,
        model=_model(_agent(session)) or _model(report),
        trace_url=trace_url(session),
    )


def condition(session: Session, now: datetime) -> str:
    """The one word that matters most for an operator."""
    if presentation.is_ended(session):
        return str(session.status)
    if presentation.is_stuck(session, now):
        return "stuck"
    if session.awaiting_client:
        return "waiting"
    if session.run_id is not None:
        return "running"
    if presentation.is_expired(session, now):
        return "expired"
    return str(session.status)


def headline(session: Session, now: datetime) -> str:
    """One sentence: in which state it is, since when, and why."""
    state, since = condition(session, now), humanize.ago(session.status_since, now)
    runs = ngettext("%d run", "%d runs", session.turn_count) % session.turn_count
    why = presentation.reason(session)
    if state == "failed":
        text = _("Failed %(ago)s after %(runs)s") % {"ago": since, "runs": runs}
        return f"{text}: {why}" if why else f"{text}."
    if state == "completed":
        return _("Completed %(ago)s after %(runs)s.") % {"ago": since, "runs": runs}
    if state == "stuck":
        quiet = humanize.duration(now - presentation.last_sign(session))
        return _("Run %(turn)d has given no sign for %(quiet)s; its worker may have died.") % {
            "turn": session.turn_count,
            "quiet": quiet,
        }
    if state == "waiting":
        calls = presentation.waiting_calls(session)
        first = str(calls[0].get("tool_name") or "?") if calls else "?"
        more = f" +{len(calls) - 1}" if len(calls) > 1 else ""
        form = (
            _("Waits for a person to approve %s") if _is_approval(calls) else _("Waits for an answer to %s")
        )
        asked = presentation.moment(calls[0].get("requested_at")) if calls else None
        ended = _(", asked %s.") % humanize.ago(asked, now) if asked else "."
        return form % f"{first}{more}" + ended
    if state == "running":
        sign = humanize.ago(presentation.last_sign(session), now)
        return _("Run %(turn)d is under way; last sign %(ago)s.") % {"turn": session.turn_count, "ago": sign}
    if state == "expired" and session.expires_at is not None:
        return _("Expired %s and not cleaned up.") % humanize.ago(session.expires_at, now)
    if session.awaiting_children:
        return _("Waits for its sub-sessions.")
    if state in ("paused", "interrupted"):
        label = humanize.STATUS_LABELS[state]
        return _("%(state)s %(ago)s after %(runs)s.") % {"state": label, "ago": since, "runs": runs}
    if session.runnable_at is not None and session.runnable_at <= now:
        return _("Ready to run since %s; no worker has taken it.") % humanize.ago(session.runnable_at, now)
    if session.runnable_at is not None:
        return _("Runs next %s.") % humanize.ago(session.runnable_at, now)
    return _("Idle: nothing to do after %s.") % runs


def beyond_the_headline(session: Session, now: datetime) -> list[presentation.Remark]:
    """The remarks that say more than the headline, which has the error where that is the whole reason."""
    error = session.error
    code = error.get("code") if isinstance(error, dict) else None
    said = headline(session, now).rstrip(".")
    remarks = [
        each
        for each in presentation.remarks(session, now)
        if not each.text.startswith(said) and not said.startswith(each.text.rstrip("."))
    ]
    if session.status != "failed" or session.failure_reason not in (None, code):
        return remarks
    why = presentation.reason(session)
    return [
        each for each in remarks if not (each.tone == "failed" and each.text.endswith((why, f": {code}")))
    ]


def fitting(actions: list[Action], session: Session, now: datetime) -> tuple[list[Action], list[Action]]:
    """The few actions that fit the state, and all others."""
    by_name = {action.name: action for action in actions}
    names = [name for name in _FITTING.get(condition(session, now), ()) if name in by_name][:BUTTONS]
    return [by_name[name] for name in names], [action for action in actions if action.name not in names]


def alike_url(session: Session) -> str:
    """The list of the sessions that failed of the same cause."""
    if session.status != "failed" or not session.error_fingerprint:
        return ""
    place = reverse("admin:helix_sessions_session_changelist")
    return f"{place}?cause={quote(session.error_fingerprint, safe='')}"


def trace_url(session: Session) -> str:
    """The address of the session's trace in the system that collects traces, by the template `TRACE_URL`."""
    template = conf.TRACE_URL
    if not template.startswith(("https://", "http://")):
        return ""
    values = {
        "trace_id": trace_id(session),
        "session_id": quote(session.session_id, safe=""),
        "agent_type": quote(session.agent_type, safe=""),
        "run_id": quote(session.run_id or "", safe=""),
    }
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", value)
    return template


def trace_id(session: Session) -> str:
    """The id of the trace that the session's spans belong to: the one it came with, or that of its own id."""
    context = session.tracing_context
    parent = context.get("traceparent") if isinstance(context, dict) else None
    found = _TRACEPARENT.fullmatch(parent) if isinstance(parent, str) else None
    if found is not None:
        return found[1]
    return sha256(f"helix_sessions:{session.session_id}".encode()).hexdigest()[:32]


def _is_approval(calls: list[dict[str, Any]]) -> bool:
    return bool(calls) and calls[0].get("kind") == "approval"


def _runs(session: Session, now: datetime) -> tuple[timedelta | None, Any]:
    """How long its newest runs took together, and the newest report of what was used."""
    runs = stored(Run).filter(session_id=session.session_id).newest_first()
    rows = list(runs.values_list("started_at", "ended_at", "usage")[:MOST_RUNS])
    spans = [(ended or now) - started for started, ended, _usage in rows]
    return sum(spans, timedelta()) if spans else None, next((usage for *_times, usage in rows if usage), None)


def _agent(session: Session) -> Any:
    record = stored(AgentRecord).filter(session_id=session.session_id).only("session_id", "model").first()
    try:
        return None if record is None else {"model": record.model}
    except ContentUnreadable:
        return None


def _model(value: Any) -> str:
    model = value.get("model") if isinstance(value, dict) else None
    if isinstance(model, dict):
        model = model.get("name") or model.get("model")
    return model[:80] if isinstance(model, str) else ""
