"""The operator's console: sessions found, read, and acted upon, through the store's calls alone.

Only sessions are registered. What belongs to them has composite keys, which the admin cannot register, and is
shown on the pages of its session.
"""

from django.contrib import admin

from helix_sessions.admin.sessions import SessionAdmin
from helix_sessions.models import Session

__all__ = ["SessionAdmin"]

admin.site.register(Session, SessionAdmin)
