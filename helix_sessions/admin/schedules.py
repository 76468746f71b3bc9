"""Schedules: made, changed, paused, run now; when they fire next, and what became of their last firings."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from helix_sessions.admin import widgets
from helix_sessions.admin.base import ModelAdmin, store, stored
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.models import Schedule, ScheduleFiring
from helix_sessions.models.schedules import MAX_PROMPT
from helix_sessions.store.schedules.schedules import next_firings
from helix_sessions.templatetags.helix_admin import session_url

FIRINGS_SHOWN = 20
_FIELDS = ("name", "cron", "timezone", "agent_type", "prompt", "owner", "session", "overlap")
_MORE = ("catch_up", "priority", "enabled")


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]
    """What a schedule is. The store checks it."""

    prompt = forms.CharField(
        label=_("Prompt"), max_length=MAX_PROMPT, widget=forms.Textarea(attrs={"class": "vLargeTextField"})
    )

    class Meta:
        model = Schedule
        fields = (*_FIELDS, *_MORE)

    def clean(self) -> dict[str, Any]:
        """Ask the store whether this is a schedule, and keep it."""
        given = dict(super().clean() or {})
        if self.errors:
            return given
        try:
            if self.instance._state.adding:
                self.kept = store().create_schedule(given.pop("name"), **given)
            else:
                self.kept = store().update_schedule(self.instance.pk, **given)
        except HelixSessionsError as error:
            raise ValidationError(str(error)) from None
        return self.cleaned_data

    def _post_clean(self) -> None:
        """The store has checked the values."""

    def save(self, commit: bool = True) -> Any:
        """The store has kept it."""
        self.instance = stored(Schedule).get(pk=self.kept.schedule_id)
        self.save_m2m = lambda: None  # type: ignore[method-assign]
        return self.instance


class ScheduleAdmin(ModelAdmin):
    """Work that starts by the clock. A user who may change schedules may do everything with them, as over
    HTTP."""

    form = ScheduleForm
    list_display = (
        "name",
        "agent_type",
        "cron",
        "timezone",
        "enabled",
        "next_firing",
        "last_firing",
        "error",
    )
    list_filter = ("enabled", "agent_type")
    search_fields = ("name", "=agent_type", "=schedule_id")
    raw_id_fields = ("owner",)
    readonly_fields = ("next_five", "last_firings")
    actions = ["run_now", "pause", "enable"]

    class Media:
        css = {"all": ["helix_sessions/console.css"]}

    def get_queryset(self, request: HttpRequest) -> Any:
        """With their owners, who may be in another database."""
        return super().get_queryset(request).prefetch_related("owner")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """A new one has not fired yet."""
        return (*_FIELDS, *_MORE, *(() if obj is None else self.readonly_fields))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_operate_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_operate_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_operate_permission(request)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("helix_sessions.change_schedule"))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """The store has kept it."""

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Through the store."""
        store().delete_schedule(obj.pk)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """The same of several."""
        for schedule_id in _ids(queryset):
            store().delete_schedule(schedule_id)

    @admin.display(description=_("Next firing"), ordering="next_at")
    def next_firing(self, schedule: Schedule) -> Any:
        times = next_firings(schedule)
        return widgets.when(times[0]) if times else "-"

    @admin.display(description=_("Last firing"), ordering="last_firing_at")
    def last_firing(self, schedule: Schedule) -> Any:
        return "-" if schedule.last_firing_at is None else widgets.when(schedule.last_firing_at)

    @admin.display(description=_("Error"))
    def error(self, schedule: Schedule) -> str:
        return schedule.last_error or ""

    @admin.display(description=_("Next firings"))
    def next_five(self, schedule: Schedule) -> Any:
        """Five, or why there is none."""
        times = [(widgets.when(at),) for at in next_firings(schedule)]
        return format_html_join("", "<div>{}</div>", times) or _("None while it is not enabled.")

    @admin.display(description=_("Last firings"))
    def last_firings(self, schedule: Schedule) -> SafeString:
        """The newest, with their sessions and their errors."""
        rows = stored(ScheduleFiring).filter(schedule_id=schedule.pk).order_by("-firing_id")[:FIRINGS_SHOWN]
        return format_html(
            '<div class="hx"><table>{}</table></div>',
            format_html_join(
                "",
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                ((widgets.when(row.firing_at), row.state, _session(row), row.error or "") for row in rows),
            ),
        )

    @admin.action(description=_("Run now"), permissions=["operate"])
    def run_now(self, request: HttpRequest, queryset: Any) -> None:
        """Fire what was chosen. What fails says why."""
        made = 0
        for schedule_id in _ids(queryset):
            firing = store().run_schedule(schedule_id)
            if firing.state == "failed":
                messages.error(request, str(firing.error))
            made += firing.state != "failed"
        text = ngettext("%d schedule was fired.", "%d schedules were fired.", made)
        messages.success(request, text % made)

    @admin.action(description=_("Pause"), permissions=["operate"])
    def pause(self, request: HttpRequest, queryset: Any) -> None:
        """Nothing is fired or missed while they are paused."""
        self._enable(request, queryset, enabled=False)

    @admin.action(description=_("Enable"), permissions=["operate"])
    def enable(self, request: HttpRequest, queryset: Any) -> None:
        """From now on."""
        self._enable(request, queryset, enabled=True)

    def _enable(self, request: HttpRequest, queryset: Any, *, enabled: bool) -> None:
        done = 0
        for schedule_id in _ids(queryset):
            try:
                store().update_schedule(schedule_id, enabled=enabled)
                done += 1
            except HelixSessionsError as error:
                messages.error(request, str(error))
        text = ngettext("%d schedule was changed.", "%d schedules were changed.", done)
        messages.success(request, text % done)


def _ids(queryset: Any) -> Iterable[str]:
    return list(queryset.values_list("schedule_id", flat=True))


def _session(row: ScheduleFiring) -> Any:
    if row.session_id is None:
        return ""
    return format_html('<a href="{}">{}</a>', session_url(row.session_id), row.session_id)
