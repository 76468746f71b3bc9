"""Spend limits: set, changed and deleted, with what is used, what is left and who is close."""

from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from helix_sessions.admin import widgets
from helix_sessions.admin.base import ModelAdmin, store, stored
from helix_sessions.exceptions import HelixSessionsError
from helix_sessions.models import SpendLimit
from helix_sessions.store.engine.spending import NANO, Standing
from helix_sessions.store.limits import spend_limits
from helix_sessions.types import SPEND_SCOPES, SPEND_WINDOWS

_SELECTORS = ("scope", "key", "window")
_VALUES = ("usd", "tokens", "warn_at", "enabled")


class SpendLimitForm(forms.ModelForm):  # type: ignore[type-arg]
    """A limit. What it is known by is said once; the amounts may change."""

    scope = forms.ChoiceField(choices=[(each, each) for each in SPEND_SCOPES], label=_("Scope"))
    window = forms.ChoiceField(choices=[(each, each) for each in SPEND_WINDOWS], label=_("Window"))

    class Meta:
        model = SpendLimit
        fields = (*_SELECTORS, *_VALUES)

    def clean(self) -> dict[str, Any]:
        """Ask the store whether this is a limit, and set it."""
        given = dict(super().clean() or {})
        if self.errors:
            return given
        if not self.instance._state.adding:
            given.update({name: getattr(self.instance, name) for name in _SELECTORS})
        given["key"] = given.get("key") or None
        try:
            self.limit = store().set_spend_limit(**given)
        except HelixSessionsError as error:
            raise ValidationError(str(error)) from None
        return self.cleaned_data

    def _post_clean(self) -> None:
        """The store has checked the values."""

    def save(self, commit: bool = True) -> Any:
        """The store has kept it."""
        self.instance = stored(SpendLimit).get(pk=self.limit.limit_id)
        self.save_m2m = lambda: None  # type: ignore[method-assign]
        return self.instance


class CloseFilter(admin.SimpleListFilter):
    """`?standing=close`"""

    title = _("standing")
    parameter_name = "standing"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("close", _("close to the limit")), ("reached", _("reached"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() not in ("close", "reached"):
            return queryset
        found = [
            each.limit_id
            for each in spend_limits.standings(store())
            if each.is_reached or (self.value() == "close" and each.is_close)
        ]
        return queryset.filter(limit_id__in=found)


class SpendLimitAdmin(ModelAdmin):
    """What owners, agent types and all together may spend, and what is left of it."""

    form = SpendLimitForm
    list_display = ("whose", "window", "used", "left", "share", "resets", "warn_at", "enabled")
    list_filter = (CloseFilter, "scope", "window", "enabled")
    search_fields = ("=key",)
    ordering = ("scope", "key", "window")

    class Media:
        css = {"all": ["helix_sessions/console.css"]}

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Of one that is there also how it stands."""
        own = (*_SELECTORS, *_VALUES)
        return own if obj is None else (*own, "used", "left", "share", "resets")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Another scope, key or window is another limit."""
        return () if obj is None else (*_SELECTORS, "used", "left", "share", "resets")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Read how the limits of the page stand, and who the owners are, at once."""
        page = super().get_changelist_instance(request)
        rows = list(page.result_list)
        standings = _standings([row.pk for row in rows])
        names = _names([row.key for row in rows if row.scope == "owner"])
        for row in rows:
            row.standing, row.name = standings.get(row.pk), names.get(row.key)
        page.result_list = rows
        return page

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """One limit, and how it stands."""
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            row.standing = _standings([row.pk]).get(row.pk)  # type: ignore[attr-defined]
        return row

    def has_add_permission(self, request: HttpRequest) -> bool:
        """A user who may change limits may set them, as over HTTP."""
        return bool(request.user.has_perm("helix_sessions.change_spendlimit"))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A user who may change limits may delete them."""
        return bool(request.user.has_perm("helix_sessions.change_spendlimit"))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """The store has set it."""

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Through the store."""
        store().delete_spend_limit(obj.pk)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """The same of several."""
        for limit_id in list(queryset.values_list("limit_id", flat=True)):
            store().delete_spend_limit(limit_id)

    @admin.display(description=_("For"), ordering="scope")
    def whose(self, row: Any) -> str:
        if row.scope == "owner":
            return str(_now("owner %s") % (row.name or row.key))
        return str(_now("agent type %s") % row.key if row.scope == "agent_type" else _now("all"))

    @admin.display(description=_("Used"))
    def used(self, row: Any) -> str:
        found = _standing(row)
        return "-" if found is None else _amounts(found.used.nano_usd, found.used.tokens)

    @admin.display(description=_("Left"))
    def left(self, row: Any) -> str:
        found = _standing(row)
        if found is None:
            return "-"
        return _amounts(
            None if found.nano_usd is None else max(0, found.nano_usd - found.used.nano_usd),
            None if found.tokens is None else max(0, found.tokens - found.used.tokens),
        )

    @admin.display(description=_("Share"))
    def share(self, row: Any) -> SafeString:
        """How much of the limit is used, as a bar and in words."""
        found = _standing(row)
        if found is None:
            return format_html("-")
        words = f"{found.share:.0%}"
        if found.is_reached:
            words = f"{words} · {_now('reached')}"
        elif found.is_close:
            words = f"{words} · {_now('close')}"
        return format_html(
            '<span class="{}"><progress max="100" value="{}"></progress> {}</span>',
            "hx-overdue" if found.is_reached or found.is_close else "",
            min(100, round(found.share * 100)),
            words,
        )

    @admin.display(description=_("Next window"))
    def resets(self, row: Any) -> SafeString:
        found = _standing(row)
        return widgets.when(None if found is None else found.resets_at)


def _standing(row: Any) -> Standing | None:
    return getattr(row, "standing", None)


def _standings(limit_ids: list[str]) -> dict[str, Standing]:
    found = spend_limits.standings(store(), limit_ids=limit_ids, enabled=False)
    return {each.limit_id: each for each in found}


def _names(keys: list[Any]) -> dict[str, str]:
    """The names of users, who may be in another database, by their keys as text."""
    users = get_user_model()
    found = users._default_manager.filter(pk__in=[key for key in keys if _is_key(key)]) if keys else ()
    return {str(user.pk): user.get_username() for user in found}


def _is_key(key: Any) -> bool:
    """Whether a user could have it; a row that was written past the store may have any."""
    try:
        get_user_model()._meta.pk.to_python(key)
    except (ValidationError, TypeError, ValueError):
        return False
    return True


def _amounts(nano_usd: int | None, tokens: int | None) -> str:
    parts = []
    if nano_usd is not None:
        parts.append(f"${(Decimal(nano_usd) / NANO).quantize(Decimal('0.01'))}")
    if tokens is not None:
        parts.append(_now("%s tokens") % f"{tokens:,}")
    return " · ".join(parts) or "-"
