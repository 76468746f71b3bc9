"""The operator's actions that have a session run."""

from typing import Any

from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from helix_sessions.admin.action import Action, Answers, NotApplicable
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.types import CasMismatch


def if_held(session: Session) -> str:
    held = session.status in ("paused", "interrupted")
    return "" if held else _now("It is neither paused nor interrupted.")


def _unless_waiting(session: Session) -> str:
    waits = session.awaiting_client or session.awaiting_children
    return _now("It waits for an answer, and goes on with it.") if waits else ""


def if_stopped(session: Session) -> str:
    stopped = session.status in ("failed", "paused", "interrupted")
    return "" if stopped else _now("It has neither failed nor been stopped.")


def reactivate(store: SessionStore, session: Session, answers: Answers) -> None:
    require(store.compare_and_set_status(session.session_id, ["paused", "interrupted"], "active"))


def _run(store: SessionStore, session: Session, answers: Answers) -> None:
    store.request_run(session.session_id)


def _resume(store: SessionStore, session: Session, answers: Answers) -> None:
    reactivate(store, session, answers)
    store.request_run(session.session_id)


def _retry(store: SessionStore, session: Session, answers: Answers) -> None:
    store.retry_run(session.session_id)


def require(outcome: Any) -> None:
    if isinstance(outcome, CasMismatch):
        raise NotApplicable(_now("It is %s by now.") % outcome.current_status)


RUN_ACTIONS = (
    Action(
        name="run",
        label=_("Run"),
        icon="play",
        promise=ngettext_lazy("%(count)d session will run.", "%(count)d sessions will run.", "count"),
        report=ngettext_lazy(
            "A run of %(count)d session was asked for.", "Runs of %(count)d sessions were asked for.", "count"
        ),
        explanation=_(
            "A worker takes the session up and runs at least one turn, after the run under way if there is "
            "one. Asking twice is one run."
        ),
        refusal=_unless_waiting,
        perform=_run,
    ),
    Action(
        name="resume",
        label=_("Resume"),
        icon="play",
        promise=ngettext_lazy(
            "%(count)d session will be resumed.", "%(count)d sessions will be resumed.", "count"
        ),
        report=ngettext_lazy("%(count)d session goes on.", "%(count)d sessions go on.", "count"),
        explanation=_(
            "Paused and interrupted sessions become active, and a worker goes on with the turn that was "
            "stopped."
        ),
        refusal=if_held,
        perform=_resume,
    ),
    Action(
        name="retry",
        label=_("Retry"),
        icon="play",
        promise=ngettext_lazy(
            "The last turn of %(count)d session will be tried again.",
            "The last turns of %(count)d sessions will be tried again.",
            "count",
        ),
        report=ngettext_lazy(
            "%(count)d session is tried again.", "%(count)d sessions are tried again.", "count"
        ),
        explanation=_(
            "A worker runs the turn that failed or was stopped again, without a new message, and counts its "
            "attempts from the beginning. Calls of tools that were executed are not repeated."
        ),
        refusal=if_stopped,
        perform=_retry,
    ),
)
