"""The base of the console: the stock admin or django-unfold. Only this module knows which."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib import admin
from django.db import DatabaseError, connections
from django.db.models import Model
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.text import capfirst

from helix_sessions.exceptions import NotMigrated
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.store.engine.connection import outage

if TYPE_CHECKING:
    StockAdmin = admin.ModelAdmin[Session]
elif apps.is_installed("unfold"):
    from unfold.admin import ModelAdmin as StockAdmin
else:
    StockAdmin = admin.ModelAdmin


def store() -> SessionStore:
    """The store of the database that sessions are written to."""
    return SessionStore()


def stored(model: type[Model]) -> Any:
    """The rows of a model that the store writes, where it writes them: an operator acts on what is shown, so
    it must not be what a replica had a moment ago."""
    return model._default_manager.using(store().using)


@contextmanager
def forgotten_migrate_told() -> Iterator[None]:
    """Missing tables become `NotMigrated`, from queries of the console as from calls of the store."""
    try:
        yield
    except DatabaseError as error:
        told = outage(connections[store().using], error)
        if not isinstance(told, NotMigrated):
            raise
        raise told from error


class ModelAdmin(StockAdmin):
    """Shows the rows that the store writes."""

    @property
    def urls(self) -> list[URLPattern]:
        """The addresses, each of which says that `migrate` was forgotten."""
        patterns: list[URLPattern] = self.get_urls()
        for pattern in patterns:
            pattern.callback = self._told(pattern.callback)
        return patterns

    def _told(self, view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def telling(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                with forgotten_migrate_told():
                    return view(request, *args, **kwargs)
            except NotMigrated as error:
                context = {
                    **self.admin_site.each_context(request),
                    "opts": self.opts,
                    "title": capfirst(self.opts.verbose_name_plural),
                    "sentence": str(error),
                }
                return TemplateResponse(
                    request, "admin/helix_sessions/not_migrated.html", context, status=503
                )

        return telling

    def get_queryset(self, request: HttpRequest) -> Any:
        """As `stored` does."""
        return super().get_queryset(request).using(store().using)


def is_for_the_list(location: Any) -> bool:
    """Whether Django wants the actions of the list. Django 6.1 may ask for those of an object's page as
    well."""
    return location is None or location.name == "CHANGE_LIST"


def list_action(function: Callable[..., Any], name: str, label: Any) -> Any:
    """An action of the list, in the form this Django has for it."""
    if not TYPE_CHECKING and hasattr(admin, "ActionLocation"):
        from django.contrib.admin.options import Action

        return Action(function, name, label, label, [admin.ActionLocation.CHANGE_LIST])
    return function, name, label
