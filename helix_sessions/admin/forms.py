"""The forms of actions. Every action asks for a reason."""

import json
from collections.abc import Collection
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidDocument, InvalidInput
from helix_sessions.store.calls.submissions import MAX_RESULT_BYTES
from helix_sessions.store.engine import inputs
from helix_sessions.values.agents import Budget

_SPANS = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=30),
}

_LINE = {"class": "vTextField", "autocomplete": "off"}
_JSON = {"class": "vLargeTextField", "rows": 6, "spellcheck": "false"}
_MOMENT = {"class": "vTextField", "type": "datetime-local"}


class ReasonForm(forms.Form):
    """Why."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=500,
        help_text=_("Kept in the admin's log and in the log of each session."),
        widget=forms.TextInput(attrs=_LINE),
    )


class ExpiryForm(ReasonForm):
    """When sessions expire from now on."""

    change = forms.ChoiceField(
        label=_("Expiry"),
        choices=[
            ("hour", _("Extend by one hour")),
            ("day", _("Extend by one day")),
            ("week", _("Extend by seven days")),
            ("month", _("Extend by thirty days")),
            ("at", _("Set to the time below")),
            ("never", _("Never expire")),
        ],
        help_text=_(
            "Extending counts from the present expiry, or from now if there is none or it has passed."
        ),
    )
    expires_at = forms.DateTimeField(
        label=_("Time"),
        required=False,
        widget=forms.DateTimeInput(attrs=_MOMENT),
        help_text=_("In the time zone of this site."),
    )
    field_order = ["change", "expires_at", "reason"]

    def clean(self) -> dict[str, Any]:
        """A time is needed where it is to be set."""
        cleaned = super().clean() or {}
        if (
            cleaned.get("change") == "at"
            and not cleaned.get("expires_at")
            and "expires_at" not in self.errors
        ):
            self.add_error("expires_at", _("Say when."))
        return cleaned


def new_expiry(answers: dict[str, Any], present: datetime | None) -> datetime | None:
    """The expiry the form asks for, of a session that expires at `present`."""
    change = answers["change"]
    if change == "never":
        return None
    if change == "at":
        given: datetime = answers["expires_at"]
        return given
    now = timezone.now()
    return (now if present is None else max(now, present)) + _SPANS[change]


class CallForm(ReasonForm):
    """Which call, as the operator saw it."""

    call = forms.CharField(max_length=inputs.MAX_TOOL_CALL_ID, widget=forms.HiddenInput)
    asked_at = forms.CharField(max_length=64, widget=forms.HiddenInput)
    arguments_digest = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)


class ApprovalForm(CallForm):
    """What is approved, and for how long."""

    arguments = forms.CharField(
        label=_("Execute with"),
        required=False,
        max_length=MAX_RESULT_BYTES,
        help_text=_(
            "A JSON object. If you change it, the call is executed with these arguments, and the agent is "
            "told. Empty: as the agent asked."
        ),
        widget=forms.Textarea(attrs=_JSON),
    )
    remember = forms.ChoiceField(
        label=_("Always allow"),
        required=False,
        choices=[
            ("", _("No, ask again")),
            ("session", _("This tool in this session")),
            ("owner", _("This tool in every session of its owner")),
        ],
        help_text=_("Makes a tool rule, with any arguments, that can be revoked under Tool rules."),
    )
    field_order = ["arguments", "remember", "reason"]

    def clean_arguments(self) -> dict[str, Any] | None:
        """The object, or `None` to execute the call as it was asked."""
        text: str = self.cleaned_data["arguments"]
        if not text:
            return None
        try:
            value = documents.load_foreign(text)
        except InvalidDocument as error:
            raise forms.ValidationError(str(error)) from None
        if not isinstance(value, dict):
            raise forms.ValidationError(_("Arguments are a JSON object."))
        return value


class ResultForm(CallForm):
    """What a tool returned."""

    is_error = forms.BooleanField(
        label=_("Answer with an error"), required=False, help_text=_("The agent gets the reason.")
    )
    result = forms.CharField(
        label=_("Result"),
        required=False,
        strip=False,
        max_length=MAX_RESULT_BYTES,
        help_text=_("JSON; anything else is taken as text."),
        widget=forms.Textarea(attrs=_JSON),
    )
    field_order = ["result", "is_error", "reason"]

    def clean_result(self) -> Any:
        """The JSON value, or the text."""
        text: str = self.cleaned_data["result"]
        try:
            value = json.loads(text)
            documents.dump(value)
        except (ValueError, RecursionError):
            return text
        return value


class ForkForm(ReasonForm):
    """What a new session is called."""

    new_id = forms.CharField(
        label=_("Id of the new session"),
        required=False,
        max_length=inputs.MAX_ID,
        help_text=_("If empty, one is generated."),
        widget=forms.TextInput(attrs=_LINE),
    )
    field_order = ["new_id", "reason"]

    def clean_new_id(self) -> str | None:
        """An id as the store takes it."""
        return _identifier(self.cleaned_data["new_id"], inputs.MAX_ID)


class BranchForm(ForkForm):
    """Where a branch begins and what it is called."""

    checkpoint_id = forms.CharField(
        label=_("Checkpoint"),
        required=False,
        max_length=inputs.MAX_CHECKPOINT_ID,
        help_text=_("The branch begins with the state and the messages of this checkpoint; empty: of now."),
        widget=forms.TextInput(attrs=_LINE),
    )
    field_order = ["checkpoint_id", "new_id", "reason"]

    def clean_checkpoint_id(self) -> str | None:
        """An id as the store takes it."""
        return _identifier(self.cleaned_data["checkpoint_id"], inputs.MAX_CHECKPOINT_ID)


class ModelForm(ReasonForm):
    """Which model."""

    model = forms.CharField(
        label=_("Model"),
        required=False,
        max_length=500,
        show_hidden_initial=True,
        help_text=_("If you empty it, the agent uses its default."),
        widget=forms.TextInput(attrs=_LINE),
    )
    default = forms.BooleanField(label=_("Use the default of the agent"), required=False)
    field_order = ["model", "default", "reason"]

    def clean(self) -> dict[str, Any]:
        """The model, `None` for the default of the agent. An untouched form changes nothing."""
        cleaned = super().clean() or {}
        if cleaned.get("default"):
            cleaned["model"] = None
        elif "model" not in self.changed_data and not self.errors:
            self.add_error("model", _("Nothing was changed."))
        else:
            cleaned["model"] = cleaned.get("model") or None
        return cleaned


def _limit(kind: type[forms.Field], label: Any, **options: Any) -> Any:
    return kind(label=label, required=False, show_hidden_initial=True, **options)


class BudgetForm(ReasonForm):
    """What one execution may use. Only the limits that were changed are meant."""

    max_steps = _limit(forms.IntegerField, _("Steps"), min_value=0)
    max_tokens = _limit(forms.IntegerField, _("Tokens"), min_value=0)
    max_seconds = _limit(forms.FloatField, _("Seconds"), min_value=0)
    max_cost = _limit(forms.FloatField, _("Cost"), min_value=0)
    deadline = _limit(
        forms.DateTimeField,
        _("Deadline"),
        widget=forms.DateTimeInput(attrs=_MOMENT, format="%Y-%m-%dT%H:%M"),
        help_text=_("In the time zone of this site."),
    )
    unlimited = forms.BooleanField(label=_("Remove all limits"), required=False)
    field_order = ["max_steps", "max_tokens", "max_seconds", "max_cost", "deadline", "unlimited", "reason"]

    def clean(self) -> dict[str, Any]:
        """The limits that were changed, as the runtime takes them; `None` removes them all. An
        untouched form changes nothing."""
        cleaned = super().clean() or {}
        changed = {each.name for each in fields(Budget)} & set(self.changed_data)
        limits = {name: cleaned.get(name) for name in changed}
        if cleaned.get("unlimited"):
            cleaned["limits"] = None
            return cleaned
        if not changed and not self.errors:
            raise forms.ValidationError(_("Nothing was changed."))
        try:
            Budget(**limits)
        except InvalidInput as error:
            raise forms.ValidationError(str(error)) from None
        cleaned["limits"] = limits
        return cleaned


def _identifier(value: str, limit: int) -> str | None:
    try:
        return inputs.identifier(value, "The id", limit=limit) if value else None
    except InvalidInput as error:
        raise forms.ValidationError(str(error)) from None


def focus(form: Any, filled: Collection[str] = ()) -> None:
    """Let the first thing to fill in, or to mend, have the focus."""
    fields = form.visible_fields()
    wrong = [field for field in fields if form.is_bound and field.errors]
    empty = [field for field in fields if field.name not in filled]
    for field in fields:
        field.field.widget.attrs.pop("autofocus", None)
    (wrong or empty or fields)[0].field.widget.attrs["autofocus"] = True
