"""The operator's console: sessions found, read, and acted upon, through the store's calls alone.

Sessions are registered, the instructions of agent types, and the audit trail. What belongs to a session has
composite keys, which the admin cannot register, and is shown on its pages.
"""

from django.contrib import admin

from helix_sessions.admin.audits import AuditEntryAdmin
from helix_sessions.admin.instructions import InstructionsAdmin
from helix_sessions.admin.sessions import SessionAdmin
from helix_sessions.models import AuditEntry, Instructions, Session

__all__ = ["AuditEntryAdmin", "InstructionsAdmin", "SessionAdmin"]

admin.site.register(Session, SessionAdmin)
admin.site.register(Instructions, InstructionsAdmin)  # type: ignore[misc]
admin.site.register(AuditEntry, AuditEntryAdmin)  # type: ignore[misc]
