"""Alerts: made and changed, with what they found last."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from helix_sessions.admin import bulk, widgets
from helix_sessions.admin.base import ModelAdmin
from helix_sessions.models import Alert


class AlertForm(forms.ModelForm):  # type: ignore[type-arg]
    """A filter that the list has, and a threshold."""

    class Meta:
        model = Alert
        fields = ("name", "query", "threshold", "every_seconds", "enabled")
        widgets = {"query": forms.TextInput(attrs={"class": "vLargeTextField"})}

    def clean_query(self) -> str:
        """The filter alone, if the list has it."""
        query = bulk.cleaned(self.cleaned_data["query"].strip().removeprefix("?"))
        if not query:
            raise ValidationError(_now("Every session is no alert: name a filter."))
        try:
            bulk.matching(AnonymousUser(), query)
        except bulk.BadFilter:
            raise ValidationError(_now("The list of sessions has no such filter.")) from None
        return query


class AlertAdmin(ModelAdmin):
    """The alerts, and which of them fire."""

    form = AlertForm
    list_display = ("name", "state", "sessions", "threshold", "since", "looked_at", "enabled")
    readonly_fields = ("state", "sessions", "since", "looked_at", "error")
    ordering = ("name",)

    class Media:
        css = {"all": ["helix_sessions/console.css"]}

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Look at it soon."""
        obj.next_check_at = timezone.now()
        super().save_model(request, obj, form, change)

    @admin.display(description=_("State"))
    def state(self, alert: Any) -> SafeString:
        """Whether it fires."""
        if alert.error:
            return _chip("stuck", _now("Could not look"))
        if alert.is_firing:
            return _chip("failed", _now("Firing"))
        label = _now("Quiet") if alert.checked_at else _now("Not looked at")
        return _chip("completed" if alert.checked_at else "paused", label)

    @admin.display(description=_("Sessions"))
    def sessions(self, alert: Any) -> SafeString:
        """How many there were, and the list of them."""
        place = reverse("admin:helix_sessions_session_changelist")
        count = "-" if alert.count is None else f"{alert.count:,}"
        return format_html('<a href="{}?{}">{}</a>', place, alert.query, count)

    @admin.display(description=_("Since"))
    def since(self, alert: Any) -> SafeString:
        """When it last began or ended."""
        return widgets.when(alert.changed_at)

    @admin.display(description=_("Looked at"))
    def looked_at(self, alert: Any) -> SafeString:
        """When it was last looked at."""
        return widgets.when(alert.checked_at)


def _chip(kind: str, label: str) -> SafeString:
    return format_html('<span class="hx-chip hx-is-{}"><span>{}</span></span>', kind, label)
