"""The operator's actions that use the runtime."""

from dataclasses import replace
from typing import Any

from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from helix_sessions.admin import agent_settings
from helix_sessions.admin.action import Action, Answers
from helix_sessions.admin.forms import BudgetForm, ForkForm, ModelForm
from helix_sessions.models import Session
from helix_sessions.runtime import (
    Budget,
    ChangeBudget,
    ChangeModel,
    ClearSession,
    ForkSession,
    SessionRuntime,
    SuspendSession,
)
from helix_sessions.store import SessionStore


def _if_active(session: Session) -> str:
    return "" if session.status == "active" else _now("It is not active.")


def _if_said(session: Session) -> str:
    return "" if session.message_count else _now("Its transcript is empty.")


def _suspend(store: SessionStore, session: Session, answers: Answers) -> None:
    SessionRuntime(store).execute(session.session_id, SuspendSession())


def _clear(store: SessionStore, session: Session, answers: Answers) -> None:
    SessionRuntime(store).execute(session.session_id, ClearSession())


def _change_model(store: SessionStore, session: Session, answers: Answers) -> None:
    SessionRuntime(store).execute(session.session_id, ChangeModel(answers["model"]))


def _change_budget(store: SessionStore, session: Session, answers: Answers) -> None:
    """Change the limits that the operator changed, and leave the others as they are by now."""
    runtime = SessionRuntime(store)
    now = runtime.get_session(session.session_id)
    budget = None
    if answers["limits"] is not None:
        budget = replace(now.state.budget or Budget(), **answers["limits"])
    change = ChangeBudget(None if budget == Budget() else budget)
    runtime.execute(session.session_id, change, expected_version=now.version)


def _fork(store: SessionStore, session: Session, answers: Answers) -> Any:
    return SessionRuntime(store).execute(session.session_id, ForkSession(answers["new_id"])).session_id


RUNTIME_ACTIONS = (
    Action(
        name="suspend",
        label=_("Suspend"),
        icon="pause",
        promise=ngettext_lazy(
            "%(count)d session will be suspended.", "%(count)d sessions will be suspended.", "count"
        ),
        report=ngettext_lazy(
            "%(count)d session was suspended.", "%(count)d sessions were suspended.", "count"
        ),
        explanation=_(
            "The session is paused until it is made active again. This stops nothing: what "
            "runs goes on, and should be interrupted."
        ),
        refusal=_if_active,
        perform=_suspend,
    ),
    Action(
        name="fork",
        label=_("Fork"),
        icon="tree",
        promise=ngettext_lazy(
            "%(count)d session will be forked.", "%(count)d sessions will be forked.", "count"
        ),
        report=ngettext_lazy("%(count)d session was forked.", "%(count)d sessions were forked.", "count"),
        explanation=_(
            "A new session with this one for a parent, and with its messages, metadata, model and limits. "
            "Deleting the parent deletes the fork; a branch is independent."
        ),
        perform=_fork,
        form=ForkForm,
        is_for_one=True,
    ),
    Action(
        name="change_model",
        label=_("Change model"),
        icon="branch",
        promise=ngettext_lazy(
            "%(count)d session gets another model.", "%(count)d sessions get another model.", "count"
        ),
        report=ngettext_lazy(
            "%(count)d session has another model.", "%(count)d sessions have another model.", "count"
        ),
        explanation=_("It is used from the next execution on."),
        perform=_change_model,
        form=ModelForm,
        present=agent_settings.models,
    ),
    Action(
        name="change_budget",
        label=_("Change budget"),
        icon="clock",
        promise=ngettext_lazy(
            "%(count)d session gets another budget.", "%(count)d sessions get another budget.", "count"
        ),
        report=ngettext_lazy(
            "%(count)d session has another budget.", "%(count)d sessions have another budget.", "count"
        ),
        explanation=_(
            "The limits of each execution from now on. What you leave as it is stays; a field that you empty "
            "is not limited any more."
        ),
        perform=_change_budget,
        form=BudgetForm,
        present=agent_settings.limits,
    ),
    Action(
        name="clear",
        label=_("Clear transcript"),
        icon="broom",
        promise=ngettext_lazy(
            "The transcript of %(count)d session will be emptied.",
            "The transcripts of %(count)d sessions will be emptied.",
            "count",
        ),
        report=ngettext_lazy(
            "The transcript of %(count)d session was emptied.",
            "The transcripts of %(count)d sessions were emptied.",
            "count",
        ),
        explanation=_(
            "The agent starts again, with its state, metadata and model. The messages stay in the log."
        ),
        refusal=_if_said,
        perform=_clear,
        is_dangerous=True,
    ),
)
