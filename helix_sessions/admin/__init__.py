"""The operator's console: find, read and act upon sessions, only through calls of the store.

Registered are sessions, the instructions of agent types, tool rules, spend limits, memories, schedules,
alerts, webhooks with their deliveries, and the audit trail. The other tables have composite keys, which the
admin cannot register; the pages of a session show them.
"""

from django.contrib import admin

from helix_sessions.admin.alerts import AlertAdmin
from helix_sessions.admin.audits import AuditEntryAdmin
from helix_sessions.admin.entry_point import TEMPLATE
from helix_sessions.admin.instructions import InstructionsAdmin
from helix_sessions.admin.memories import MemoryAdmin
from helix_sessions.admin.schedules import ScheduleAdmin
from helix_sessions.admin.sessions import SessionAdmin
from helix_sessions.admin.spend import SpendLimitAdmin
from helix_sessions.admin.tool_rules import ToolRuleAdmin
from helix_sessions.admin.webhooks import WebhookAdmin, WebhookDeliveryAdmin
from helix_sessions.models import (
    Alert,
    AuditEntry,
    Instructions,
    Memory,
    Schedule,
    Session,
    SpendLimit,
    ToolRule,
    Webhook,
    WebhookDelivery,
)

__all__ = [
    "AlertAdmin",
    "AuditEntryAdmin",
    "InstructionsAdmin",
    "MemoryAdmin",
    "ScheduleAdmin",
    "SessionAdmin",
    "SpendLimitAdmin",
    "ToolRuleAdmin",
    "WebhookAdmin",
    "WebhookDeliveryAdmin",
]

admin.site.register(Session, SessionAdmin)
admin.site.register(Instructions, InstructionsAdmin)  # type: ignore[misc]
admin.site.register(ToolRule, ToolRuleAdmin)  # type: ignore[misc]
admin.site.register(SpendLimit, SpendLimitAdmin)  # type: ignore[misc]
admin.site.register(Memory, MemoryAdmin)  # type: ignore[misc]
admin.site.register(AuditEntry, AuditEntryAdmin)  # type: ignore[misc]
admin.site.register(Schedule, ScheduleAdmin)  # type: ignore[misc]
admin.site.register(Alert, AlertAdmin)  # type: ignore[misc]
admin.site.register(Webhook, WebhookAdmin)  # type: ignore[misc]
admin.site.register(WebhookDelivery, WebhookDeliveryAdmin)  # type: ignore[misc]

if admin.site.index_template is None:  # a project with a template of its own keeps it
    admin.site.index_template = TEMPLATE
