"""The summaries of maintenance jobs."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from helix_sessions.values.agents import AgentDefinition as AgentDefinition
from helix_sessions.values.agents import AgentSession as AgentSession
from helix_sessions.values.agents import AgentSessionInfo as AgentSessionInfo
from helix_sessions.values.agents import AgentState as AgentState
from helix_sessions.values.agents import Budget as Budget
from helix_sessions.values.agents import Execution as Execution
from helix_sessions.values.agents import StoredAt as StoredAt
from helix_sessions.values.basics import PRUNED_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupSummary:
    """What a clean-up of expired sessions found and did."""

    detected: int = 0
    """Sessions whose `expires_at` is in the past."""
    marked: int = 0
    """Those set to `failed` with the reason `session_expired`; in a dry run, those that would be."""
    already_terminal: int = 0
    """Those that had completed or failed already."""
    snapshots_deleted: int = 0
    """Workspace snapshots that were deleted; in a dry run, those that would be."""
    errors: int = 0
    """Sessions with an error. The next clean-up retries them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DebrisSummary:
    """What crashes left behind, and what was removed."""

    staged_removed: int = 0
    """Orphaned staged changes; in a dry run, those that would be removed."""
    stuck: tuple[str, ...] = ()
    """Sessions with a running run that have not changed for too long."""
    woken: int = 0
    """Stuck sessions that were woken."""
    keys_removed: int = 0
    """Expired idempotency keys; in a dry run, those that would be removed."""
    memories_removed: int = 0
    """Expired memories; in a dry run, those that would be removed."""
    fragments_removed: int = 0
    """Batches of fragments that a process left which is gone; in a dry run, those that would be removed."""
    blobs_removed: int = 0
    """Attachments that no session has; in a dry run, those that would be removed."""
    spend_removed: int = 0
    """Totals of what was spent in days and months that are long over; in a dry run, those that would be
    removed."""
    errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Which sessions may be deleted. Every condition must hold."""

    terminal_for: timedelta
    """They have had their status for at least this long."""
    statuses: tuple[str, ...] = PRUNED_STATUSES
    """They have one of these statuses."""
    agent_types: tuple[str, ...] = ()
    """They are of one of these agent types; empty means any."""
    keep_tags: tuple[str, ...] = ()
    """They have none of these tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneSummary:
    """What a retention policy deleted, or in a dry run would delete."""

    sessions: int = 0
    messages: int = 0
    events: int = 0
    estimated_bytes: int | None = None
    """The estimated size of their rows, by the average size of a row; unknown on SQLite."""
    kept_for_forks: int = 0
    """Sessions the policy would delete, but a branch of them exists."""
    kept_for_children: int = 0
    """Sessions the policy would delete, but a sub-session of them is kept."""
    errors: int = 0
    """Sessions with an error. The next run retries them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSummary:
    """How many entries of the audit trail were deleted, or in a dry run would be."""

    entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationSummary:
    """What a rotation of encryption keys encrypted again, or in a dry run would."""

    sessions: int = 0
    """Sessions that were checked."""
    rows: int = 0
    """Rows that were written again."""
    files: int = 0
    """Archives that were written again."""
    errors: int = 0
    """Sessions and kept responses with content that cannot be decrypted. It was not changed."""
    last_session_id: str | None = None
    """The last session that was checked, to continue with `after`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSummary:
    """What was moved from event logs to a storage, or in a dry run would be."""

    sessions: int = 0
    events: int = 0
    files: int = 0
    stored_bytes: int = 0
    """The size of the compressed files."""
    errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An invariant that a session's rows break."""

    code: str
    """What is wrong; stable across releases."""
    session_id: str | None
    """Where; `None` for the database as a whole."""
    detail: str
    severity: Literal["error", "warning"] = "error"
    """A warning is unusual and allowed."""
    repairable: bool = False
    """Whether it can be repaired without guessing."""
    repaired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSummary:
    """What was exported or imported."""

    trees: int = 0
    sessions: int = 0
    records: int = 0
    """Lines, without the header."""
    renewed: int = 0
    """Sessions that were imported under a new id."""
    skipped: int = 0
    """Sessions that were skipped, because an id of their tree exists already; memories and schedules too."""
    memories: int = 0
    """Memories across sessions."""
    schedules: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveSummary:
    """What was moved to another database."""

    trees: int = 0
    sessions: int = 0
    records: int = 0
    """Rows that were written there, those that were caught up included."""
    memories: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureSummary:
    """What was removed of a person, or in a dry run would be."""

    sessions: int = 0
    """Sessions with their trees of sub-sessions."""
    messages: int = 0
    events: int = 0
    snapshots_deleted: int = 0
    archives_deleted: int = 0
    """Archive files of event logs."""
    answers_deleted: int = 0
    """Other rows of the person, such as responses kept for idempotency keys."""
    memories: int = 0
    """Memories across sessions, of the owner."""
    forks_left: tuple[str, ...] = ()
    """Branches of the erased sessions that have another owner; they have copies of messages."""
    errors: int = 0
    """Sessions that could not be removed. Retry."""
