"""The operator's actions that repair a session: go back, try again otherwise, or try again beside it."""

from typing import Any

from django import forms
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from helix_sessions.admin.action import Action, Answers
from helix_sessions.admin.forms import BranchForm, ModelForm, ReasonForm
from helix_sessions.admin.run_actions import if_stopped
from helix_sessions.models import Session
from helix_sessions.runtime import ChangeModel, ChangeSystemPrompt, SessionRuntime
from helix_sessions.store import SessionStore
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.ids import new_id

_LINE = {"class": "vTextField", "autocomplete": "off"}


class RewindForm(ReasonForm):
    """To which checkpoint, and whether to go on from there."""

    checkpoint_id = forms.CharField(
        label=_("Checkpoint"),
        required=False,
        max_length=inputs.MAX_CHECKPOINT_ID,
        help_text=_("An id of the page State; empty: the latest."),
        widget=forms.TextInput(attrs=_LINE),
    )
    run = forms.BooleanField(label=_("Run from there"), required=False)
    field_order = ["checkpoint_id", "run", "reason"]


class ReplayForm(BranchForm):
    """Where the branch begins, and with which model and prompt it tries again."""

    model = forms.CharField(
        label=_("Model"),
        required=False,
        max_length=500,
        help_text=_("Empty: the same."),
        widget=forms.TextInput(attrs=_LINE),
    )
    system_prompt = forms.CharField(
        label=_("System prompt"),
        required=False,
        max_length=100_000,
        help_text=_("Empty: the same."),
        widget=forms.Textarea(attrs={"class": "vLargeTextField", "rows": 5}),
    )
    field_order = ["model", "system_prompt", "checkpoint_id", "new_id", "reason"]


def _unless_running(session: Session) -> str:
    return _now("It is running; interrupt it first.") if session.run_id is not None else ""


def _if_any_messages(session: Session) -> str:
    return "" if session.message_count else _now("It has no messages.")


def _rewind(store: SessionStore, session: Session, answers: Answers) -> None:
    store.rewind(session.session_id, checkpoint_id=answers["checkpoint_id"] or None)
    if answers["run"]:
        store.request_run(session.session_id)


def _change_model_and_retry(store: SessionStore, session: Session, answers: Answers) -> None:
    SessionRuntime(store).execute(session.session_id, ChangeModel(answers["model"] or None))
    store.retry_run(session.session_id)


def _replay(store: SessionStore, session: Session, answers: Answers) -> str:
    branch = answers["new_id"] or new_id()
    store.clone_session(session.session_id, branch, checkpoint_id=answers["checkpoint_id"])
    changes: list[Any] = []
    if answers["model"]:
        changes.append(ChangeModel(answers["model"]))
    if answers["system_prompt"]:
        changes.append(ChangeSystemPrompt(answers["system_prompt"]))
    for change in changes:
        SessionRuntime(store).execute(branch, change)
    store.regenerate(branch)
    return branch


REPAIR_ACTIONS = (
    Action(
        name="change_model_and_retry",
        label=_("Change model and retry"),
        icon="branch",
        promise=ngettext_lazy(
            "The last turn of %(count)d session will be tried again with another model.",
            "The last turns of %(count)d sessions will be tried again with another model.",
            "count",
        ),
        report=ngettext_lazy(
            "%(count)d session is tried again with another model.",
            "%(count)d sessions are tried again with another model.",
            "count",
        ),
        explanation=_("The model stays changed for what follows. The attempts are counted from zero."),
        refusal=if_stopped,
        perform=_change_model_and_retry,
        form=ModelForm,
    ),
    Action(
        name="rewind",
        label=_("Rewind to"),
        icon="clock",
        promise=ngettext_lazy(
            "%(count)d session will be as it was at a checkpoint.",
            "%(count)d sessions will be as they were at a checkpoint.",
            "count",
        ),
        report=ngettext_lazy("%(count)d session was rewound.", "%(count)d sessions were rewound.", "count"),
        explanation=_(
            "State and transcript go back to the checkpoint; later messages leave the transcript and stay in "
            "the log. What tools did outside is not undone."
        ),
        refusal=_unless_running,
        perform=_rewind,
        form=RewindForm,
        is_for_one=True,
        is_dangerous=True,
    ),
    Action(
        name="replay",
        label=_("Replay as a branch"),
        icon="branch",
        promise=ngettext_lazy(
            "%(count)d session will be replayed as a branch.",
            "%(count)d sessions will be replayed as branches.",
            "count",
        ),
        report=ngettext_lazy(
            "%(count)d session is replayed as a branch.",
            "%(count)d sessions are replayed as branches.",
            "count",
        ),
        explanation=_(
            "A new session with the state and the messages of this one answers the last message of the user "
            "once more, with another model or prompt if you say so. This session stays as it is. Tools are "
            "called again."
        ),
        refusal=_if_any_messages,
        perform=_replay,
        form=ReplayForm,
        is_for_one=True,
    ),
)
