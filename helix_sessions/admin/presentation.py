"""A session as an operator sees it first: its status, why, since when, and who waits for what."""

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
    "interrupt_requested_at",
    "run_id",
    "turn_count",
    "message_count",
    "parent_session_id",
    "expires_at",
    "created_at",
    "updated_at",
)
"""What a list needs; no document among it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A status or a condition: told by its words, its colour and its icon."""

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
    """Running, and has not moved for `STUCK_MINUTES`."""
    return session.run_id is not None and session.updated_at < now - timedelta(minutes=conf.STUCK_MINUTES)


def is_expired(session: Session, now: datetime) -> bool:
    """Past its time and not ended."""
    return not is_ended(session) and session.expires_at is not None and session.expires_at < now


def condition_chips(session: Session, now: datetime) -> Iterator[Chip]:
    """What else is to be said of a session besides its status."""
    if is_stuck(session, now):
        yield Chip(kind="stuck", label=_("Stuck"))
    elif session.run_id is not None:
        yield Chip(kind="running", label=_("Running"))
    if session.awaiting_client:
        yield Chip(kind="waiting", label=_("Waiting for a person"))
    if session.interrupt_requested_at is not None:
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
    quiet = humanize.duration(now - session.updated_at)
    if session.status == "failed":
        reason = session.failure_reason or session.error or _("no reason was given")
        yield "failed", _("Failed: %s") % _brief(reason)
        if session.failure_reason and session.error:
            yield "failed", _("Error: %s") % _brief(session.error)
    elif session.error:
        yield "failed", _("Last error: %s") % _brief(session.error)
    if is_stuck(session, now):
        yield (
            "stuck",
            _("A run is under way, but nothing has happened for %s. Its process may have died.") % quiet,
        )
    elif session.run_id is not None:
        yield "running", _("A run is under way; last activity %s.") % humanize.ago(session.updated_at, now)
    if session.interrupt_requested_at is not None:
        asked = humanize.ago(session.interrupt_requested_at, now)
        reason = session.interrupt_reason or _("no reason was given")
        yield (
            "stopping",
            _("Asked to stop %(ago)s, nobody has taken the request yet: %(reason)s")
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
    """Whether a session could have this id. Whatever else is in an address must not reach the database."""
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
