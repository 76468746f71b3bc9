"""The session list."""

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from helix_sessions.admin import humanize, presentation, searching, widgets
from helix_sessions.admin.action_views import ActionViews
from helix_sessions.admin.actions import ACTIONS
from helix_sessions.admin.base import is_for_the_list, list_action, stored
from helix_sessions.admin.cause_filters import CauseFilter, FeedbackFilter, ToolFilter, WithinFilter
from helix_sessions.admin.change_list import SessionChangeList
from helix_sessions.admin.filters import AgentTypeFilter, ConditionFilter, CreatedFilter, StatusFilter
from helix_sessions.admin.lists import ConsoleList
from helix_sessions.admin.paginator import SortingPaginator
from helix_sessions.admin.saved_views import SavedViews
from helix_sessions.admin.worker_views import WorkerViews
from helix_sessions.messages.usage import usage_of
from helix_sessions.models import Session
from helix_sessions.models.fields import NumberAt


class SessionAdmin(ActionViews, SavedViews, WorkerViews, ConsoleList):
    """The list of sessions. They are read on their pages and changed only by actions."""

    list_display = ("session", "state", "agent", "messages", "cost", "activity", "age")
    list_display_links = ("session",)
    list_filter = (
        ConditionFilter,
        StatusFilter,
        AgentTypeFilter,
        CreatedFilter,
        FeedbackFilter,
        CauseFilter,
        ToolFilter,
        WithinFilter,
    )
    sortable_by = ("messages", "cost", "activity", "age")
    ordering = ("-created_at", "-session_id")
    paginator = SortingPaginator
    search_fields = ("session_id", "user_id", "agent_type")
    search_help_text = _(
        "A part of an id, a user, an agent type, a tag, key=value of the metadata, words of errors and "
        "transcripts. Or say where: user:ann, agent:, tag:, error:, text:."
    )
    actions_selection_counter = True
    change_list_template = "admin/helix_sessions/session/change_list.html"

    def get_queryset(self, request: HttpRequest) -> Any:
        """Rows of the list, without documents."""
        return stored(Session).only(*presentation.LIST_COLUMNS, "usage")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        """The one that draws its filters itself."""
        return SessionChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """What `searching` finds."""
        if not search_term.strip():
            return queryset, False
        found = searching.find(queryset, search_term)
        request.search_is_cut = found.is_cut  # type: ignore[attr-defined]
        return queryset.filter(session_id__in=found.ids), False

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list, or the way to the filters of a saved view."""
        opened = self.open_view(request)
        if opened is not None:
            return opened
        context = {
            "title": _now("Sessions"),
            "views": self.views_of(request, request.GET.urlencode()),
            **(extra_context or {}),
        }
        response = super().changelist_view(request, context)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            is_cut = getattr(request, "search_is_cut", False)
            response.context_data["searches"] = searching.limits(is_cut=is_cut)
        return response

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
    def state(self, session: Any) -> SafeString:
        """Status and conditions, and under them why."""
        chips = [presentation.status_chip(session.status)]
        chips += presentation.condition_chips(session, timezone.now())
        if session.awaiting_children and not presentation.is_ended(session):
            chips.append(presentation.Chip(kind="suspended_awaiting_children", label=_now("Sub-sessions")))
        drawn = format_html_join(" ", "{}", ((widgets.chip(chip),) for chip in chips))
        return format_html('{}<span class="hx-sub hx-why">{}</span>', drawn, session.why)

    @admin.display(description=_("Agent"))
    def agent(self, session: Any) -> SafeString:
        """The agent type, the user, and the model it used last."""
        return format_html(
            '{}<span class="hx-sub">{}</span><span class="hx-sub hx-model">{}</span>',
            session.agent_type,
            session.user_id or "",
            session.model_used,
        )

    @admin.display(description=_("Messages"), ordering="message_count")
    def messages(self, session: Session) -> str:
        """How long its transcript is."""
        return f"{session.message_count:,}"

    @admin.display(description=_("Cost"), ordering=NumberAt("usage", "cost"))
    def cost(self, session: Session) -> SafeString:
        """What it has used."""
        used = usage_of(session.usage)
        if not used.cost and not used.tokens:
            return format_html('<span class="hx-none">{}</span>', "-")
        cost = f"{used.cost:,.4f}" if used.cost < 1 else f"{used.cost:,.2f}"
        tokens = _now("%s tokens") % humanize.short(used.tokens)
        return format_html('{}<span class="hx-sub">{}</span>', cost if used.cost else "-", tokens)

    @admin.display(description=_("Last activity"), ordering="updated_at")
    def activity(self, session: Session) -> SafeString:
        """The last activity, and how long it lasted: from the beginning to the end, or to the agent's last
        sign."""
        end = session.status_since if presentation.is_ended(session) else presentation.last_sign(session)
        lasted = _now("lasted %s") % humanize.duration(max(end - session.created_at, timedelta(0)))
        return format_html('{}<span class="hx-sub">{}</span>', widgets.when(session.updated_at), lasted)

    @admin.display(description=_("Age"), ordering="-created_at")
    def age(self, session: Session) -> SafeString:
        """How long ago it began."""
        return widgets.when(session.created_at, humanize.age(timezone.now() - session.created_at))
