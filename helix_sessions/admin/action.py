"""The actions of an operator."""

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
    """The action does not apply to the session in its present state."""

    code = "not_applicable"


def _for_any(session: Session) -> str:
    return ""


def _nothing_set(sessions: list[Session]) -> tuple[Answers, set[str]]:
    return {}, set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action of an operator on sessions."""

    name: str
    label: Any
    icon: str
    promise: Any
    """The sentence before, with `%(count)d` sessions."""
    report: Any
    """The sentence after, with `%(count)d` sessions."""
    explanation: Any
    """What an operator should know before the action."""
    perform: Callable[[SessionStore, Session, Answers], Any]
    """Carries the action out through the store."""
    refusal: Callable[[Session], str] = _for_any
    """Why the action does not apply to a session; empty if it does."""
    form: type[forms.Form] = ReasonForm
    present: Callable[[list[Session]], tuple[Answers, set[str]]] = _nothing_set
    """What the form begins with: what is set in all of the sessions, and the fields in which they differ."""
    is_dangerous: bool = False
    is_for_one: bool = False
    """Whether it takes a single session."""
    leaves_session: bool = True
    """Whether the session exists afterwards, so that its log can record the action."""
    is_download: bool = False
    takes_time: bool = False
    """Whether it must hold no lock meanwhile; the operator is then logged afterwards."""
    answers: str = ""
    """The kind of pending call it answers: its button is with the call, and its page shows what is asked."""

    @property
    def permission(self) -> str:
        """The permission it needs, without the app's label."""
        return f"{self.name}_session"

    def promised(self, count: int) -> str:
        """The sentence before, with a number that can be read."""
        return str(self.promise % {"count": count}).replace(str(count), f"{count:,}", 1)

    def is_allowed(self, request: HttpRequest) -> bool:
        """Whether this user has the permission, and may see sessions."""
        user = request.user
        return user.has_perm("helix_sessions.view_session") and user.has_perm(
            f"helix_sessions.{self.permission}"
        )
