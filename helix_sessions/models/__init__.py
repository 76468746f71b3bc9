"""The tables: columns, constraints, indexes and querysets. Every decision is in the store."""

from helix_sessions.models.agents import AgentRecord
from helix_sessions.models.alerts import Alert
from helix_sessions.models.archives import ArchivedRange
from helix_sessions.models.audits import AuditEntry
from helix_sessions.models.blobs import Blob, BlobRef
from helix_sessions.models.bulk_actions import BulkAction
from helix_sessions.models.checkpoints import Checkpoint
from helix_sessions.models.client_calls import ClientCall
from helix_sessions.models.contexts import Compaction, ContextEpoch, ContextUpdate
from helix_sessions.models.events import Event, EventKey
from helix_sessions.models.feedback import Feedback
from helix_sessions.models.fragments import FragmentBatch
from helix_sessions.models.idempotency import IdempotentAnswer
from helix_sessions.models.inputs import Input, InputClaim
from helix_sessions.models.instructions import Instructions, InstructionsRevision
from helix_sessions.models.memories import Memory, MemoryVector
from helix_sessions.models.messages import Message
from helix_sessions.models.moves import MovedOwner, MovedSession
from helix_sessions.models.notes import Note
from helix_sessions.models.runs import Run, RunTally
from helix_sessions.models.saved_views import SavedView
from helix_sessions.models.schedules import Schedule, ScheduleFiring
from helix_sessions.models.sessions import Session
from helix_sessions.models.spend import SpendEntry, SpendLimit, SpendTotal
from helix_sessions.models.staging import StagedChange
from helix_sessions.models.states import StateSnapshot
from helix_sessions.models.sub_sessions import SubSessionRef
from helix_sessions.models.tool_rules import ToolRule
from helix_sessions.models.transcript_words import MessageWords
from helix_sessions.models.webhooks import Webhook, WebhookDelivery
from helix_sessions.models.workers import Worker

__all__ = [
    "AgentRecord",
    "Alert",
    "ArchivedRange",
    "AuditEntry",
    "Blob",
    "BlobRef",
    "BulkAction",
    "Checkpoint",
    "ClientCall",
    "Compaction",
    "ContextEpoch",
    "ContextUpdate",
    "Event",
    "EventKey",
    "Feedback",
    "FragmentBatch",
    "IdempotentAnswer",
    "Input",
    "InputClaim",
    "Instructions",
    "InstructionsRevision",
    "Memory",
    "MemoryVector",
    "Message",
    "MessageWords",
    "MovedOwner",
    "MovedSession",
    "Note",
    "Run",
    "RunTally",
    "SavedView",
    "Schedule",
    "ScheduleFiring",
    "Session",
    "SpendEntry",
    "SpendLimit",
    "SpendTotal",
    "StagedChange",
    "StateSnapshot",
    "SubSessionRef",
    "ToolRule",
    "Webhook",
    "WebhookDelivery",
    "Worker",
]
