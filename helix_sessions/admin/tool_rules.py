"""Tool rules: seen, made and revoked."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from helix_sessions.admin.base import ModelAdmin, store, stored
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.models import ToolRule
from helix_sessions.types import TOOL_DECISIONS


class ToolRuleForm(forms.ModelForm):  # type: ignore[type-arg]
    """A rule with its selectors; an empty one is any."""

    decision = forms.ChoiceField(choices=[(each, each) for each in TOOL_DECISIONS], label=_("Decision"))
    arguments = forms.JSONField(
        required=False,
        label=_("Arguments"),
        help_text=_("A JSON object: only calls with exactly these arguments."),
    )

    class Meta:
        model = ToolRule
        fields = ("tool", "decision", "agent_type", "session_id", "owner", "arguments")

    def clean(self) -> dict[str, Any]:
        """Ask the store whether this is a rule, and set it."""
        given: dict[str, Any] = {name: value or None for name, value in (super().clean() or {}).items()}
        if self.errors:
            return given
        try:
            self.rule = store().set_tool_rule(given.pop("tool"), given.pop("decision"), **given)
        except HelixSessionsError as error:
            raise ValidationError(str(error)) from None
        return self.cleaned_data

    def _post_clean(self) -> None:
        """The store has checked the values."""

    def save(self, commit: bool = True) -> Any:
        """The store has kept it."""
        self.instance = stored(ToolRule).get(pk=self.rule.rule_id)
        self.save_m2m = lambda: None  # type: ignore[method-assign]
        return self.instance


class ToolRuleAdmin(ModelAdmin):
    """What becomes of calls of tools. A rule is replaced by one with the same selectors, and never edited."""

    form = ToolRuleForm
    list_display = ("tool", "decision", "agent_type", "session_id", "owner", "arguments", "created_at")
    list_filter = ("decision",)
    search_fields = ("tool", "agent_type", "session_id")
    raw_id_fields = ("owner",)

    def get_queryset(self, request: HttpRequest) -> Any:
        """With their owners, who may be in another database."""
        return super().get_queryset(request).prefetch_related("owner")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """A user who may change rules may create them, as over HTTP."""
        return bool(request.user.has_perm("helix_sessions.change_toolrule"))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A user who may change rules may revoke them."""
        return bool(request.user.has_perm("helix_sessions.change_toolrule"))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A rule is revoked and made anew."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """The store has set it."""

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Through the store, which tells the session."""
        store().delete_tool_rule(obj.pk)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """The same of several."""
        for rule_id in list(queryset.values_list("rule_id", flat=True)):
            store().delete_tool_rule(rule_id)
