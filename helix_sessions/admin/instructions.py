"""Edits the instructions of agent types; every version is kept."""

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from helix_sessions.admin import widgets
from helix_sessions.admin.base import ModelAdmin, store
from helix_sessions.admin.pages.contexts import DiffLine, difference_of_texts
from helix_sessions.exceptions import InvalidInput
from helix_sessions.models import Instructions
from helix_sessions.store.context.instructions import MAX_CHARACTERS
from helix_sessions.store.engine import inputs

REVISIONS_SHOWN = 50


class InstructionsForm(forms.ModelForm):  # type: ignore[type-arg]
    """An agent type and its text."""

    class Meta:
        model = Instructions
        fields = ("agent_type", "text")
        help_texts = {"agent_type": _("Those of * are for every agent type that has none of its own.")}
        widgets = {"text": forms.Textarea(attrs={"class": "vLargeTextField", "rows": 20})}

    def clean_agent_type(self) -> str:
        """A name as the store takes it."""
        try:
            return inputs.identifier(self.cleaned_data["agent_type"], "agent_type")
        except InvalidInput as error:
            raise ValidationError(str(error)) from None

    def clean_text(self) -> str:
        """A text as the store takes it, with the line ends of a file."""
        text = str(self.cleaned_data["text"]).replace("\r\n", "\n")
        if len(text) > MAX_CHARACTERS:
            raise ValidationError(_now("At most %d characters are kept.") % MAX_CHARACTERS)
        return text


class InstructionsAdmin(ModelAdmin):
    """The instructions that `StoredInstructions` gives to agents."""

    form = InstructionsForm
    list_display = ("agent_type", "number", "updated_at")
    search_fields = ("agent_type",)
    fields = ("agent_type", "text", "versions")
    readonly_fields = ("versions",)

    class Media:
        css = {"all": ["helix_sessions/console.css"]}

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Other instructions for another agent type are other instructions."""
        return ("versions",) if obj is None else ("agent_type", "versions")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Through the store, which keeps the version before."""
        store().set_instructions(obj.agent_type, obj.text)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Withdraw them; the versions stay."""
        store().set_instructions(obj.agent_type, None)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """The same of several."""
        for agent_type in queryset.values_list("agent_type", flat=True):
            store().set_instructions(agent_type, None)

    @admin.display(description=_("Versions"))
    def versions(self, obj: Instructions) -> SafeString:
        """Every version, the newest first, as what it changed."""
        if not obj.pk:
            return format_html("{}", "-")
        revisions = store().list_instructions_revisions(obj.agent_type)
        shown = []
        for revision, before in zip(revisions, [*revisions[1:], None], strict=True):
            old = (before.text if before else None) or ""
            shown.append((revision, difference_of_texts(old, revision.text or "")))
        return format_html(
            '<div class="hx">{}</div>',
            format_html_join(
                "",
                '<div class="hx-card"><div class="hx-card-head">{} {}</div>'
                '<pre class="hx-lines">{}</pre></div>',
                (
                    (f"#{revision.number}", widgets.when(revision.created_at), _lines(lines))
                    for revision, lines in shown[:REVISIONS_SHOWN]
                ),
            ),
        )


def _lines(lines: list[DiffLine]) -> SafeString:
    return format_html_join(
        "", '<span class="hx-line-{}">{}</span>', ((line.kind, line.text) for line in lines)
    )
