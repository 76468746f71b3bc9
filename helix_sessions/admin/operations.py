"""Carrying an action out: one session at a time, each counted, logged, or listed with why not."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.http import HttpRequest
from django.utils.translation import gettext as _

from helix_sessions.admin.action import Action, Answers, NotApplicable
from helix_sessions.admin.presentation import is_id
from helix_sessions.exceptions import HelixSessionsError, SessionNotFound
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.store.maintenance.operators import operate

COLUMNS = (
    "session_id",
    "agent_type",
    "user_id",
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
    "interrupt_requested_at",
)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What an action did, exactly."""

    done: list[str] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    """Sessions and why it was not done to them."""
    results: list[Any] = field(default_factory=list)
    """What the store answered for each that was done."""


def selected(ids: Iterable[str]) -> list[Session]:
    """The sessions with these ids that exist, without documents, the newest first."""
    keys = [key for key in ids if is_id(key)]
    return list(Session.objects.filter(session_id__in=keys).only(*COLUMNS).newest_first())


def carry_out(
    action: Action, store: SessionStore, request: HttpRequest, ids: list[str], answers: Answers
) -> Outcome:
    """Do it to each session. A failure of one is listed and never stops the others."""
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
    if not action.leaves_session:
        return action.perform(store, session, answers)
    known = {"by": operator(request), "reason": answers["reason"]}
    if action.takes_time:
        result = action.perform(store, session, answers)
        operate(store, session.session_id, action.name, lambda: None, **known)
        return result
    return operate(
        store, session.session_id, action.name, lambda: action.perform(store, session, answers), **known
    )


def operator(request: HttpRequest) -> dict[str, Any]:
    """Who asks, by id and name alone."""
    key = request.user.pk
    return {"id": key if isinstance(key, int) else str(key), "username": request.user.get_username()}


def _log(action: Action, request: HttpRequest, session_id: str, answers: Answers) -> None:
    LogEntry.objects.log_actions(
        user_id=operator(request)["id"],
        queryset=[Session(session_id=session_id)],
        action_flag=CHANGE if action.leaves_session else DELETION,
        change_message=f"{action.label}: {answers['reason']}",
        single_object=True,
    )
