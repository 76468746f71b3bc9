"""Carries an action out, session by session: each is counted and logged, or listed with the reason of its
failure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helix_sessions.admin.action import Action, Answers, NotApplicable
from helix_sessions.admin.base import stored
from helix_sessions.admin.humanize import STATUS_LABELS
from helix_sessions.admin.presentation import is_id
from helix_sessions.exceptions import ContentUnreadable, HelixSessionsError, SessionNotFound
from helix_sessions.models import AgentRecord, Session
from helix_sessions.store import SessionStore
from helix_sessions.store.maintenance.operators import Changes, differences, operate

COLUMNS = (
    "session_id",
    "agent_type",
    "user_id",
    "owner_id",
    "status",
    "status_since",
    "run_id",
    "staged_count",
    "message_count",
    "turn_count",
    "expires_at",
    "created_at",
    "updated_at",
    "awaiting_client",
    "awaiting_children",
    "interrupt_requested_at",
    "awaiting_children",
    "last_agent_activity_at",
)


_LABELS: dict[str, Any] = {
    "status": gettext_lazy("Status"),
    "expires_at": gettext_lazy("Expires"),
    "message_count": gettext_lazy("Messages"),
    "model": gettext_lazy("Model"),
    "budget": gettext_lazy("Budget"),
}


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The outcome of an action."""

    done: list[str] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    """Sessions for which it failed, and why."""
    results: list[Any] = field(default_factory=list)
    """The result of the store for each session."""
    changes: list[Changes] = field(default_factory=list)
    """What has another value than before, for each session."""

    @property
    def old_and_new(self) -> str:
        """What changed of a single session, in words."""
        return in_words(self.changes[0]) if len(self.changes) == 1 else ""


def selected(ids: Iterable[str]) -> list[Session]:
    """The sessions with these ids that exist, without documents, the newest first."""
    keys = [key for key in ids if is_id(key)]
    return list(stored(Session).filter(session_id__in=keys).only(*COLUMNS).newest_first())


def carry_out(
    action: Action, store: SessionStore, request: HttpRequest, ids: list[str], answers: Answers
) -> Outcome:
    """Carry it out on each session. An error of one is listed and never stops the others."""
    outcome = Outcome()
    sessions = {session.session_id: session for session in selected(ids)}
    for session_id in dict.fromkeys(ids):
        try:
            session = sessions.get(session_id)
            if session is None:
                raise SessionNotFound(_("There is no such session any more."))
            refusal = action.refusal(session)
            if refusal:
                raise NotApplicable(refusal)
            result, changed = _perform(action, store, request, session, answers)
        except HelixSessionsError as error:
            outcome.failures.append((session_id, str(error)))
        else:
            outcome.done.append(session_id)
            outcome.results.append(result)
            outcome.changes.append(changed)
            _log(action, request, session_id, answers, changed)
    return outcome


def _perform(
    action: Action, store: SessionStore, request: HttpRequest, session: Session, answers: Answers
) -> tuple[Any, Changes]:
    known = {"by": operator(request), "reason": answers["reason"]}
    answers = {**answers, "by": {"kind": "operator", "id": str(known["by"]["id"])}}
    if not action.leaves_session:
        return action.perform(store, session, answers), {}
    key, found = session.session_id, _Facts(session.session_id)

    def perform() -> Any:
        found.before = facts(key)
        return action.perform(store, session, answers)

    if action.takes_time:
        result = perform()
        operate(store, key, action.name, lambda: None, changes=found.changes, **known)
    else:
        result = operate(store, key, action.name, perform, changes=found.changes, **known)
    return result, found.changed


@dataclass(slots=True)
class _Facts:
    """What an action changes of a session."""

    session_id: str
    before: dict[str, Any] = field(default_factory=dict)
    changed: Changes = field(default_factory=dict)

    def changes(self) -> Changes:
        self.changed = differences(self.before, facts(self.session_id))
        return self.changed


def facts(session_id: str) -> dict[str, Any]:
    """What operators change of a session, in a form that a log can have."""
    row = (
        stored(Session).filter(session_id=session_id).values("status", "expires_at", "message_count").first()
    )
    record = stored(AgentRecord).filter(session_id=session_id).first()
    found = {name: _plain(value) for name, value in (row or {}).items()}
    try:
        return found if record is None else {**found, "model": record.model, "budget": record.budget}
    except ContentUnreadable:
        return found


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def in_words(changed: Changes) -> str:
    """`Status: Failed → Active`."""
    return ", ".join(
        f"{_LABELS[name]}: {_word(name, change['from'])} → {_word(name, change['to'])}"
        for name, change in changed.items()
        if name in _LABELS
    )


def _word(name: str, value: Any) -> str:
    if value is None:
        return _("none")
    if name == "status":
        return str(STATUS_LABELS.get(value, value))
    if name == "expires_at":
        return str(value)[:19].replace("T", " ")
    return str(value)[:200]


def operator(request: HttpRequest) -> dict[str, Any]:
    """The operator, by id and name only."""
    key = request.user.pk
    return {"id": key if isinstance(key, int) else str(key), "username": request.user.get_username()}


def _log(action: Action, request: HttpRequest, session_id: str, answers: Answers, changed: Changes) -> None:
    LogEntry.objects.log_actions(
        user_id=operator(request)["id"],
        queryset=[Session(session_id=session_id)],
        action_flag=CHANGE if action.leaves_session else DELETION,
        change_message=_change_message(action, answers, changed),
        single_object=True,
    )


def _change_message(action: Action, answers: Answers, changed: Changes) -> str:
    text = f"{action.label}: {answers['reason']}"
    scope = answers.get("remember")
    remembered = f"{_('always allow')}: {scope}" if scope else ""
    more = "; ".join(part for part in (remembered, in_words(changed)) if part)
    return f"{text} ({more})" if more else text
