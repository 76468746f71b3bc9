"""What the console stands on: the stock admin or django-unfold, chosen here and nowhere else."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib import admin
from django.db import router

from helix_sessions.models import Session
from helix_sessions.store import SessionStore

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Session]
elif apps.is_installed("unfold"):
    from unfold.admin import ModelAdmin
else:
    ModelAdmin = admin.ModelAdmin

__all__ = ["ModelAdmin", "is_for_the_list", "list_action", "store"]


def is_for_the_list(location: Any) -> bool:
    """Whether actions are asked for the list. Django 6.1 may ask for those of an object's page as well."""
    return location is None or location.name == "CHANGE_LIST"


def list_action(function: Callable[..., Any], name: str, label: Any) -> Any:
    """An action of the list, in the form this Django has for it."""
    if not TYPE_CHECKING and hasattr(admin, "ActionLocation"):
        from django.contrib.admin.options import Action

        return Action(function, name, label, label, [admin.ActionLocation.CHANGE_LIST])
    return function, name, label


def store() -> SessionStore:
    """The store of the database that sessions are written to."""
    return SessionStore(using=router.db_for_write(Session))
