"""The operator's actions that decide all waiting calls of many sessions."""

from functools import partial

from django import forms
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from helix_sessions.admin.action import Action, Answers, NotApplicable
from helix_sessions.admin.forms import ReasonForm
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.store.state import pending_calls

_LINE = {"class": "vTextField", "autocomplete": "off"}


class ToolForm(ReasonForm):
    """The calls of which tool."""

    tool = forms.CharField(
        label=_("Tool"),
        max_length=255,
        help_text=_("Only calls of this tool are decided, with any arguments."),
        widget=forms.TextInput(attrs=_LINE),
    )
    field_order = ["tool", "reason"]


def _decide(store: SessionStore, session: Session, answers: Answers, *, approved: bool) -> int:
    """Answer each approval of the tool that waits, as of one state of the session."""
    key = session.session_id
    waiting = pending_calls.unanswered(store.load_state(key).pending_client_tool_calls)
    mine = [
        call_id
        for call_id, call in waiting
        if call.get("kind") == "approval" and call.get("tool_name") == answers["tool"]
    ]
    if not mine:
        raise NotApplicable(_now("No call of %s waits for an approval.") % answers["tool"])
    for call_id in mine:
        store.submit_tool_result(key, call_id, approved=approved, reason=answers["reason"], by=answers["by"])
    return len(mine)


def _if_waiting(session: Session) -> str:
    return "" if session.awaiting_client else _now("No call waits for an answer.")


BULK_ANSWERS = (
    Action(
        name="approve_calls",
        label=_("Approve all"),
        icon="check",
        promise=ngettext_lazy(
            "Every waiting call of the tool will be approved in %(count)d session.",
            "Every waiting call of the tool will be approved in %(count)d sessions.",
            "count",
        ),
        report=ngettext_lazy(
            "The calls of %(count)d session were approved.",
            "The calls of %(count)d sessions were approved.",
            "count",
        ),
        explanation=_(
            "With the last answer a worker resumes a session and executes its calls. You approve calls whose "
            "arguments this page does not show; an answer cannot be taken back."
        ),
        refusal=_if_waiting,
        perform=partial(_decide, approved=True),
        form=ToolForm,
        is_dangerous=True,
    ),
    Action(
        name="deny_calls",
        label=_("Deny all"),
        icon="cross",
        promise=ngettext_lazy(
            "Every waiting call of the tool will be denied in %(count)d session.",
            "Every waiting call of the tool will be denied in %(count)d sessions.",
            "count",
        ),
        report=ngettext_lazy(
            "The calls of %(count)d session were denied.",
            "The calls of %(count)d sessions were denied.",
            "count",
        ),
        explanation=_(
            "The agents learn that their calls were denied, and your reason. An answer cannot be taken back."
        ),
        refusal=_if_waiting,
        perform=partial(_decide, approved=False),
        form=ToolForm,
        is_dangerous=True,
    ),
)
