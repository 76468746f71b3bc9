"""The session list."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from helix_sessions.admin import humanize, presentation, widgets
from helix_sessions.admin.action_views import ActionViews
from helix_sessions.admin.actions import ACTIONS
from helix_sessions.admin.base import is_for_the_list, list_action, stored
from helix_sessions.admin.cause_filters import CauseFilter, FeedbackFilter, WithinFilter
from helix_sessions.admin.filters import AgentTypeFilter, ConditionFilter, CreatedFilter, StatusFilter
from helix_sessions.admin.lists import ConsoleList
from helix_sessions.models import Session


class SessionAdmin(ActionViews, ConsoleList):
    """The list of sessions. They are read on their pages and changed only by actions."""

    list_display = ("session", "state", "waiting_for", "agent", "turns", "messages", "activity")
    list_display_links = ("session",)
    list_filter = (
        ConditionFilter,
        StatusFilter,
        AgentTypeFilter,
        CreatedFilter,
        FeedbackFilter,
        CauseFilter,
        WithinFilter,
    )
    ordering = ("-created_at", "-session_id")
    search_fields = ("session_id", "user_id", "agent_type")
    search_help_text = _("The beginning of an id, or a whole user id or agent type.")
    actions_selection_counter = True
    change_list_template = "admin/helix_sessions/session/change_list.html"

    def get_queryset(self, request: HttpRequest) -> Any:
        """Rows of the list: no documents, but whether sub-sessions are waited for."""
        return (
            stored(Session)
            .only(*presentation.LIST_COLUMNS)
            .annotate(awaits_children=Q(suspended_awaiting_children__isnull=False))
        )

    def ways_to_find(self, keys: Any, term: str) -> Iterable[Any]:
        """The id or its beginning, the user, the agent type."""
        beginning = keys.order_by("session_id").id_begins_with(term)
        return beginning, keys.filter(user_id=term), keys.filter(agent_type=term)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list, as of one moment."""
        return super().changelist_view(request, {"title": _now("Sessions"), **(extra_context or {})})

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """The actions this user may take on many sessions."""
        if not is_for_the_list(action_location):
            return {}
        return {
            action.name: list_action(self.list_action(action), action.name, action.label)
            for action in ACTIONS.values()
            if not action.is_for_one and action.is_allowed(request)
        }

    @admin.display(description=_("Session"))
    def session(self, session: Session) -> SafeString:
        """The id, and under it the parent."""
        if session.parent_session_id is None:
            return format_html("{}", session.session_id)
        parent = _now("of %s") % session.parent_session_id
        return format_html(
            '{}<span class="hx-sub">{} {}</span>', session.session_id, widgets.icon("tree"), parent
        )

    @admin.display(description=_("Status"))
    def state(self, session: Session) -> SafeString:
        """Text, colour and icon."""
        return widgets.chip(presentation.status_chip(session.status))

    @admin.display(description=_("Agent, user"))
    def agent(self, session: Session) -> SafeString:
        """The agent type and the user."""
        return format_html('{}<span class="hx-sub">{}</span>', session.agent_type, session.user_id or "")

    @admin.display(description=_("Waiting for"))
    def waiting_for(self, session: Session) -> SafeString:
        """What it does, and what it waits for."""
        chips = list(presentation.condition_chips(session, timezone.now()))
        if getattr(session, "awaits_children", False):
            chips.append(presentation.Chip(kind="suspended_awaiting_children", label=_now("Sub-sessions")))
        if not chips:
            return format_html('<span class="hx-none">{}</span>', "-")
        return format_html_join(" ", "{}", ((widgets.chip(chip),) for chip in chips))

    @admin.display(description=_("Turns"))
    def turns(self, session: Session) -> int:
        """How many runs it had."""
        return session.turn_count

    @admin.display(description=_("Messages"))
    def messages(self, session: Session) -> int:
        """How long its transcript is."""
        return session.message_count

    @admin.display(description=_("Last activity, age"))
    def activity(self, session: Session) -> SafeString:
        """The last activity, and the age."""
        age = _now("%s old") % humanize.duration(timezone.now() - session.created_at)
        return format_html(
            '{}<span class="hx-sub">{}</span>',
            widgets.when(session.updated_at),
            widgets.when(session.created_at, age),
        )
