"""What the console stands on: the stock admin or django-unfold, chosen here and nowhere else."""

from typing import TYPE_CHECKING

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

__all__ = ["ModelAdmin", "store"]


def store() -> SessionStore:
    """The store of the database that sessions are written to."""
    return SessionStore(using=router.db_for_write(Session))
