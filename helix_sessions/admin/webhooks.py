"""Webhooks: made, changed, and their last deliveries, which can be replayed."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from helix_sessions.admin import widgets
from helix_sessions.admin.base import ModelAdmin, store, stored
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.models import Webhook, WebhookDelivery
from helix_sessions.store.outbox.deliveries import in_state, state_of
from helix_sessions.types import DELIVERY_STATES, UNSET, WEBHOOK_EVENTS, CreatedWebhook
from helix_sessions.types import Webhook as StoredWebhook

DELIVERIES_SHOWN = 20


class WebhookForm(forms.ModelForm):  # type: ignore[type-arg]
    """An address and the types it is told of. The secret is entered or made once."""

    url = forms.CharField(
        label=_("URL"), max_length=2000, widget=forms.URLInput(attrs={"class": "vLargeTextField"})
    )
    events = forms.MultipleChoiceField(
        choices=[(each, each) for each in WEBHOOK_EVENTS],
        required=False,
        widget=forms.CheckboxSelectMultiple,
        label=_("Events"),
        help_text=_("None: all of them."),
    )
    secret = forms.CharField(
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        label=_("Secret"),
        help_text=_("whsec_ and 24 to 64 bytes in base64. Leave it empty to have one made."),
    )

    class Meta:
        model = Webhook
        fields = ("url", "events", "enabled", "secret")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.instance._state.adding:
            self.fields.pop("secret", None)

    def clean(self) -> dict[str, Any]:
        """Ask the store whether this is a webhook, and keep it."""
        given = dict(super().clean() or {})
        if self.errors:
            return given
        try:
            if self.instance._state.adding:
                given["secret"] = given.get("secret") or None
                self.kept: StoredWebhook = store().create_webhook(given.pop("url"), **given)
            else:
                given["url"] = UNSET if "url" not in self.changed_data else given["url"]
                self.kept = store().update_webhook(self.instance.pk, **given)
        except HelixSessionsError as error:
            raise ValidationError(str(error)) from None
        return self.cleaned_data

    def _post_clean(self) -> None:
        """The store has checked the values."""

    def save(self, commit: bool = True) -> Any:
        """The store has kept it."""
        self.instance = stored(Webhook).get(pk=self.kept.webhook_id)
        self.save_m2m = lambda: None  # type: ignore[method-assign]
        return self.instance


class _Operated(ModelAdmin):
    """A user who may change webhooks may do everything with them, as over HTTP."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("helix_sessions.change_webhook"))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("helix_sessions.change_webhook"))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("helix_sessions.change_webhook"))


class WebhookAdmin(_Operated):
    """The addresses that are told of events."""

    form = WebhookForm
    list_display = ("url", "types", "enabled", "created_at", "waiting")
    list_filter = ("enabled",)
    readonly_fields = ("last_deliveries",)

    class Media:
        css = {"all": ["helix_sessions/console.css"]}

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The form shows the secret of a new webhook only, and never to users who may only look."""
        if obj is None:
            return ("url", "events", "enabled", "secret")
        return ("url", "events", "enabled", "last_deliveries")

    def get_queryset(self, request: HttpRequest) -> Any:
        """Secrets are not read."""
        return super().get_queryset(request).defer("secret")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """The store has kept it. A secret that was made is shown once."""
        if isinstance(form.kept, CreatedWebhook) and not form.cleaned_data.get("secret"):
            text = _now("The secret of the webhook, which is shown this once: %s")
            messages.warning(request, text % form.kept.secret)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """With what waits for it."""
        store().delete_webhook(obj.pk)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """The same of several."""
        for webhook_id in list(queryset.values_list("webhook_id", flat=True)):
            store().delete_webhook(webhook_id)

    @admin.display(description=_("Events"))
    def types(self, webhook: Webhook) -> str:
        return ", ".join(webhook.events) or str(_("all"))

    @admin.display(description=_("Waiting"))
    def waiting(self, webhook: Webhook) -> int:
        return in_state(_deliveries(webhook), "waiting").count()

    @admin.display(description=_("Last deliveries"))
    def last_deliveries(self, webhook: Webhook) -> SafeString:
        """The newest, and the way to all."""
        rows = _deliveries(webhook).order_by("-pk")[:DELIVERIES_SHOWN]
        every = reverse("admin:helix_sessions_webhookdelivery_changelist")
        return format_html(
            '<div class="hx"><table>{}</table><p><a href="{}?{}">{}</a></p></div>',
            format_html_join(
                "",
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                (
                    (widgets.when(row.created_at), row.type, row.session_id, state_of(row), row.error or "")
                    for row in rows
                ),
            ),
            every,
            urlencode({WebhookFilter.parameter_name: webhook.pk}),
            _("All deliveries, to replay them"),
        )


def _deliveries(webhook: Webhook) -> Any:
    return stored(WebhookDelivery).filter(webhook_id=webhook.pk)


class StateFilter(admin.SimpleListFilter):
    """`?state=failed`"""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(each, each) for each in DELIVERY_STATES]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset if self.value() not in DELIVERY_STATES else in_state(queryset, str(self.value()))


class WebhookFilter(admin.SimpleListFilter):
    """`?webhook=...`"""

    title = _("webhook")
    parameter_name = "webhook"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(each.pk, str(each)) for each in stored(Webhook).defer("secret")[:DELIVERIES_SHOWN]]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset if self.value() is None else queryset.filter(webhook_id=self.value())


class WebhookDeliveryAdmin(ModelAdmin):
    """What was sent and is to be sent. Read-only, apart from replaying."""

    list_display = (
        "created_at",
        "type",
        "session_id",
        "webhook",
        "state",
        "attempts",
        "status_code",
        "error",
    )
    list_filter = (StateFilter, "type", WebhookFilter)
    search_fields = ("=session_id", "=message_id")
    ordering = ("-delivery_id",)
    show_full_result_count = False
    actions = ["replay"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """The store adds them."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What was sent stays what it was."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """They go with their webhook, or after a week."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A user who may see webhooks may see what was sent to them."""
        needed = ("view_webhookdelivery", "view_webhook", "change_webhook")
        return any(request.user.has_perm(f"helix_sessions.{name}") for name in needed)

    def has_replay_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("helix_sessions.change_webhook"))

    @admin.display(description=_("State"))
    def state(self, delivery: WebhookDelivery) -> str:
        return state_of(delivery)

    @admin.action(description=_("Replay"), permissions=["replay"])
    def replay(self, request: HttpRequest, queryset: Any) -> None:
        """Send again what was chosen, under the same ids."""
        chosen = list(queryset.values_list("webhook_id", "message_id"))
        for webhook_id, message_id in chosen:
            store().replay_webhook_delivery(webhook_id, message_id)
        text = ngettext("%d delivery is sent again.", "%d deliveries are sent again.", len(chosen))
        messages.success(request, text % len(chosen))
