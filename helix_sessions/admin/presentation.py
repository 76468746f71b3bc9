"""The summary of a session for operators: its status, why, since when, and what it waits for."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from helix_sessions.admin import humanize
from helix_sessions.conf import conf
from helix_sessions.exceptions import InvalidInput
from helix_sessions.messages import errors
from helix_sessions.models import Session
from helix_sessions.store.engine import inputs
from helix_sessions.types import TERMINAL_STATUSES

LIST_COLUMNS = (
    "session_id",
    "agent_type",
    "user_id",
    "status",
    "status_since",
    "awaiting_client",
    "awaiting_children",
    "interrupt_requested_at",
    "run_id",
    "turn_count",
    "message_count",
    "parent_session_id",
    "expires_at",
    "created_at",
    "updated_at",
    "last_agent_activity_at",
)
"""What a list needs; no document among it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A status or a condition: text, colour and icon."""

    kind: str
    label: Any

    @property
    def icon(self) -> str:
        """The name of the icon."""
        return humanize.ICONS.get(self.kind, "dot")


def status_chip(status: str) -> Chip:
    """The chip of a session's status."""
    return Chip(kind=status, label=humanize.STATUS_LABELS.get(status, status))


def run_chip(status: str) -> Chip:
    """The chip of a run's status."""
    return Chip(kind=status, label=humanize.RUN_STATUS_LABELS.get(status, status))


def is_ended(session: Session) -> bool:
    """Completed or failed."""
    return session.status in TERMINAL_STATUSES


def is_stuck(session: Session, now: datetime) -> bool:
    """Not ended, running, and without a sign of its agent for `STUCK_MINUTES`."""
    if is_ended(session) or session.run_id is None:
        return False
    return last_sign(session) < now - timedelta(minutes=conf.STUCK_MINUTES)


def last_sign(session: Session) -> datetime:
    """When the agent was last heard of."""
    return session.last_agent_activity_at or session.updated_at


def is_expired(session: Session, now: datetime) -> bool:
    """Expired and not ended."""
    return not is_ended(session) and session.expires_at is not None and session.expires_at < now


def condition_chips(session: Session, now: datetime) -> Iterator[Chip]:
    """The conditions of a session besides its status."""
    if is_stuck(session, now):
        yield Chip(kind="stuck", label=_("Stuck"))
    elif session.run_id is not None and not is_ended(session):
        yield Chip(kind="running", label=_("Running"))
    if session.awaiting_client and not is_ended(session):
        yield Chip(kind="waiting", label=_("Waiting for a person"))
    if session.interrupt_requested_at is not None and not is_ended(session):
        yield Chip(kind="stopping", label=_("Asked to stop"))
    if is_expired(session, now):
        yield Chip(kind="expired", label=_("Expired"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One sentence on why a session is as it is; `tone` is the name of a colour."""

    tone: str
    text: str


def remarks(session: Session, now: datetime | None = None) -> list[Remark]:
    """Why a session is as it is, what matters most first. Reads the session's documents."""
    now = now or timezone.now()
    return [Remark(tone=tone, text=text) for tone, text in _remarks(session, now)]


def _remarks(session: Session, now: datetime) -> Iterator[tuple[str, str]]:
    error = _error(session)
    if session.status == "failed":
        reason = session.failure_reason or error or _("no reason was given")
        yield "failed", _("Failed: %s") % _brief(reason)
        if session.failure_reason and error:
            yield "failed", _("Error: %s") % _brief(error)
    elif error:
        yield "failed", _("Last error: %s") % _brief(error)
    yield from _next_run(session, now)
    if session.interrupt_requested_at is not None:
        asked = humanize.ago(session.interrupt_requested_at, now)
        reason = session.interrupt_reason or _("no reason was given")
        yield (
            "stopping",
            _("Asked to stop %(ago)s, no worker has taken the request yet: %(reason)s")
            % {"ago": asked, "reason": _brief(reason)},
        )
    for call in waiting_calls(session):
        yield "waiting", _waiting_for(call, now)
    for child in (session.suspended_awaiting_children or {}).values():
        name = child.get("sub_session_id") if isinstance(child, dict) else child
        yield "waiting", _("Waits for sub-session %s.") % _brief(name)
    if session.status == "interrupted" and session.interrupt_context:
        yield "interrupted", _("Interrupted: %s") % _brief(session.interrupt_context)
    if is_expired(session, now) and session.expires_at is not None:
        yield (
            "expired",
            _("Expired %s; the next cleanup will fail it.") % humanize.ago(session.expires_at, now),
        )


def reason(session: Session) -> str:
    """Why it failed, or its last error, in a few words."""
    return _brief(_error(session) or session.failure_reason or "")


def _error(session: Session) -> str:
    """The error in words, after the code of a runner's document."""
    error = session.error
    code = error.get("code") if isinstance(error, dict) else None
    parts = dict.fromkeys(str(part) for part in (code, errors.in_words(error)) if part)
    return " · ".join(parts) or ("" if error is None else str(error))


def _next_run(session: Session, now: datetime) -> Iterator[tuple[str, str]]:
    """When the session runs next, and how often it was tried without success."""
    at = session.runnable_at
    if at is not None and session.run_id is None:
        if at <= now:
            yield "running", _("Ready to run since %s.") % humanize.ago(at, now)
        else:
            yield "running", _("Runs next %s.") % humanize.ago(at, now)
    elif session.run_requested:
        yield "running", _("Another run was asked for.")
    if session.attempts > 1:
        yield "stuck", _("Taken up %d times without a committed turn.") % session.attempts
    if session.retry_attempt > 1:
        failed = session.retry_attempt - 1
        yield "stuck", _("The model call has failed %d times and is retried.") % failed


def waiting_calls(session: Session) -> list[dict[str, Any]]:
    """The pending calls without an answer."""
    calls = session.pending_client_tool_calls or {}
    return [call for call in calls.values() if isinstance(call, dict) and not call.get("submitted_at")]


def _waiting_for(call: dict[str, Any], now: datetime) -> str:
    tool = _brief(call.get("tool_name") or _("a tool"))
    if call.get("kind") == "approval":
        text = _("Waits for a person to approve %s") % tool
    else:
        text = _("Waits for a person or a client to answer %s") % tool
    asked, deadline = moment(call.get("requested_at")), moment(call.get("deadline"))
    if asked is not None:
        text += _(", asked %s") % humanize.ago(asked, now)
    if deadline is not None:
        text += (_(", deadline %s") if deadline > now else _(", deadline passed %s")) % humanize.ago(
            deadline, now
        )
    return f"{text}."


def is_id(value: Any) -> bool:
    """Whether this is a valid session id. Anything else in a URL must not reach the database."""
    try:
        inputs.identifier(value, "The id")
    except InvalidInput:
        return False
    return True


def moment(value: Any) -> datetime | None:
    """A time out of a document, if it is one."""
    try:
        found = parse_datetime(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is not None and timezone.is_aware(found) else None


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
