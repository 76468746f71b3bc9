"""Carries an action out, session by session: each is counted and logged, or listed with the reason of its
failure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.http import HttpRequest
from django.utils.translation import gettext as _

from helix_sessions.admin.action import Action, Answers, NotApplicable
from helix_sessions.admin.base import stored
from helix_sessions.admin.presentation import is_id
from helix_sessions.exceptions import HelixSessionsError, SessionNotFound
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.store.maintenance.operators import operate

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


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The outcome of an action."""

    done: list[str] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    """Sessions for which it failed, and why."""
    results: list[Any] = field(default_factory=list)
    """The result of the store for each session."""


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
            result = _perform(action, store, request, session, answers)
        except HelixSessionsError as error:
            outcome.failures.append((session_id, str(error)))
        else:
            outcome.done.append(session_id)
            outcome.results.append(result)
            _log(action, request, session_id, answers)
    return outcome


def _perform(
    action: Action, store: SessionStore, request: HttpRequest, session: Session, answers: Answers
) -> Any:
    known = {"by": operator(request), "reason": answers["reason"]}
    answers = {**answers, "by": {"kind": "operator", "id": str(known["by"]["id"])}}
    if not action.leaves_session:
        return action.perform(store, session, answers)
    if action.takes_time:
        result = action.perform(store, session, answers)
        operate(store, session.session_id, action.name, lambda: None, **known)
        return result
    return operate(
        store, session.session_id, action.name, lambda: action.perform(store, session, answers), **known
    )


def operator(request: HttpRequest) -> dict[str, Any]:
    """The operator, by id and name only."""
    key = request.user.pk
    return {"id": key if isinstance(key, int) else str(key), "username": request.user.get_username()}


def _log(action: Action, request: HttpRequest, session_id: str, answers: Answers) -> None:
    LogEntry.objects.log_actions(
        user_id=operator(request)["id"],
        queryset=[Session(session_id=session_id)],
        action_flag=CHANGE if action.leaves_session else DELETION,
        change_message=_change_message(action, answers),
        single_object=True,
    )


def _change_message(action: Action, answers: Answers) -> str:
    text = f"{action.label}: {answers['reason']}"
    scope = answers.get("remember")
    return f"{text} ({_('always allow')}: {scope})" if scope else text
