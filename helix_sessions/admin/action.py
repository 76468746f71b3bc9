"""What an action of an operator is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest

from helix_sessions.admin.forms import ReasonForm
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.models import Session
from helix_sessions.store import SessionStore

Answers = dict[str, Any]


class NotApplicable(HelixSessionsError):
    """The session is not in a state this action is for."""

    code = "not_applicable"


def _for_any(session: Session) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something an operator may do to sessions."""

    name: str
    label: Any
    icon: str
    promise: Any
    """What will happen, with `%(count)d` sessions."""
    report: Any
    """What has happened, with `%(count)d` sessions."""
    explanation: Any
    """What an operator should know before."""
    perform: Callable[[SessionStore, Session, Answers], Any]
    """Do it through the store."""
    refusal: Callable[[Session], str] = _for_any
    """Why it is not for this session; empty if it is."""
    form: type[forms.Form] = ReasonForm
    is_dangerous: bool = False
    is_for_one: bool = False
    """Whether it takes a single session."""
    leaves_session: bool = True
    """Whether there is a session afterwards whose log can tell."""
    is_download: bool = False
    takes_time: bool = False
    """Whether it must hold no lock while it is done; who did it is then logged afterwards."""
    answers: str = ""
    """The kind of pending call it answers: its button is with the call, and its page shows what is asked."""

    @property
    def permission(self) -> str:
        """The permission it takes, without the app's label."""
        return f"{self.name}_session"

    def is_allowed(self, request: HttpRequest) -> bool:
        """Whether this user may, and may see sessions at all."""
        user = request.user
        return user.has_perm("helix_sessions.view_session") and user.has_perm(
            f"helix_sessions.{self.permission}"
        )
