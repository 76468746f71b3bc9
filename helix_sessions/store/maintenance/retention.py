"""Applies retention: deletes old sessions, and archives the older part of long event logs."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import datetime
from itertools import takewhile

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput, SessionNotFound
from helix_sessions.models import Event, Message, MovedSession, Session, SubSessionRef
from helix_sessions.models.session_querysets import SessionQuerySet
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.session_rows import SessionRow, lock_row
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.transactions import Transaction, locking_transaction
from helix_sessions.store.maintenance import archives
from helix_sessions.store.maintenance.expiry import delete_snapshots_of
from helix_sessions.store.maintenance.job import Job, ids_of, pages
from helix_sessions.store.sessions.delete import lock_parent_of, remove_and_tell
from helix_sessions.store.transcript.archive_files import archive_storage
from helix_sessions.types import PRUNED_STATUSES, ArchiveSummary, PruneSummary, RetentionPolicy

_COLUMNS = (
    "session_id",
    "agent_type",
    "status",
    "status_since",
    "tags",
    "workspace_ref",
    "message_count",
    "head_seq",
    "first_seq",
    "parent_session_id",
)
_log = logging.getLogger("helix_sessions.retention")


def prune_sessions(
    store: Store,
    policy: RetentionPolicy,
    *,
    page_size: int = 200,
    limit: int | None = None,
    dry_run: bool = False,
    on_progress: Callable[[PruneSummary], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> PruneSummary:
    """Delete the sessions that match a policy, each in a transaction of its own.

    A session is kept as long as it has a branch, or a sub-session that is kept; both are checked under
    its lock, so that no branch loses its source. The newest are deleted first, so sub-sessions and
    branches before what they come from. `limit` counts deletions.
    """
    _check(policy)
    inputs.integer(page_size, "page_size", minimum=1)
    inputs.optional_integer(limit, "limit")
    before = timezone.now() - policy.terminal_for
    pruning = _Pruning(store, policy, before)
    job = Job(PruneSummary(), _log, dry_run=dry_run, on_progress=on_progress, should_stop=should_stop)
    candidates = _newest_first(_candidates(store.using, policy, before), page_size)
    for session_id in job.over(takewhile(lambda _: job.summary.sessions != limit, candidates)):
        with job.attempt(f"Session {session_id!r} could not be pruned", ignore=SessionNotFound):
            pruning.prune(session_id, job)
    return replace(job.summary, estimated_bytes=_estimated_bytes(store._connection, job.summary))


def archive_long_logs(
    store: Store,
    *,
    longer_than: int,
    keep: int = 1_000,
    agent_type: str | None = None,
    page_size: int = 200,
    dry_run: bool = False,
    on_progress: Callable[[ArchiveSummary], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> ArchiveSummary:
    """Archive all but the last `keep` events of each session whose log has more than `longer_than`."""
    inputs.integer(keep, "keep")
    if inputs.integer(longer_than, "longer_than", minimum=1) < keep:
        raise InvalidInput("longer_than must not be less than keep.")
    archive_storage()
    job = Job(ArchiveSummary(), _log, dry_run=dry_run, on_progress=on_progress, should_stop=should_stop)
    for session_id in job.over(ids_of(_long_logs(store.using, longer_than, agent_type), page_size)):
        failure = f"The log of session {session_id!r} could not be archived"
        with job.attempt(failure, ignore=SessionNotFound):
            job.count(**asdict(archives.archive_events(store, session_id, keep=keep, dry_run=dry_run)))
    return job.summary


class _Pruning:
    """A policy, and in a dry run the ids of the sessions that would be deleted."""

    def __init__(self, store: Store, policy: RetentionPolicy, before: datetime) -> None:
        self._store = store
        self._policy = policy
        self._before = before
        self._deleted: set[str] = set()

    def prune(self, session_id: str, job: Job[PruneSummary]) -> None:
        """Delete one session, unless the policy or another session keeps it."""
        session = self._store._read(session_id, _COLUMNS, tombstones=True)
        if self._is_kept(session, job):
            return
        if job.dry_run:
            self._deleted.add(session_id)
        else:
            delete_snapshots_of(session)
            with locking_transaction(self._store.using) as connection:
                around = Transaction(connection)
                lock_parent_of(around, session_id)
                session = lock_row(connection, session_id, _COLUMNS, tombstones=True)
                if self._is_kept(session, job):
                    return
                remove_and_tell(around, {session_id: session.parent_session_id})
        events = session.head_seq - session.first_seq + 1
        job.count(sessions=1, messages=session.message_count, events=events)

    def _is_kept(self, session: SessionRow, job: Job[PruneSummary]) -> bool:
        if not _fits(session, self._policy, self._before):
            return True
        using, session_id = self._store.using, session.session_id
        if MovedSession.objects.using(using).filter(moved_id=session_id).exists():
            return True  # it is on its way to another cell
        rows = Session.objects.using(using)
        refs = SubSessionRef.objects.using(using).filter(session_id=session_id, location="local")
        referred = rows.filter(session_id__in=refs.values("sub_session_id")).exclude(session_id=session_id)
        if self._any(rows.children_of(session_id)) or self._any(referred):
            job.count(kept_for_children=1)
            return True
        if self._any(rows.filter(forked_from_session_id=session_id)):
            job.count(kept_for_forks=1)
            return True
        return False

    def _any(self, rows: SessionQuerySet) -> bool:
        if not self._deleted:
            return rows.exists()
        return any(key not in self._deleted for key in rows.values_list("session_id", flat=True))


def _estimated_bytes(connection: BaseDatabaseWrapper, pruned: PruneSummary) -> int | None:
    """What so many rows take, by the average row of their tables; `None` where that is unknown."""
    counts: list[tuple[type[models.Model], int]] = [
        (Session, pruned.sessions),
        (Message, pruned.messages),
        (Event, pruned.events),
    ]
    total = 0.0
    for model, count in counts:
        size = dialect_of(connection).bytes_per_row(connection, table(model).name)
        if size is None:
            return None
        total += count * size
    return round(total)


def _check(policy: RetentionPolicy) -> None:
    if not isinstance(policy, RetentionPolicy):
        raise InvalidInput("A policy is a RetentionPolicy.")
    inputs.period(policy.terminal_for, "terminal_for")
    if not policy.statuses:
        raise InvalidInput("A policy names at least one status.")
    for status in policy.statuses:
        inputs.choice(status, PRUNED_STATUSES, "A status that may be pruned")
    for agent_type in policy.agent_types:
        inputs.identifier(agent_type, "agent_type")
    inputs.tags(policy.keep_tags)


def _fits(session: SessionRow, policy: RetentionPolicy, before: datetime) -> bool:
    """Whether the policy matches this session."""
    return (
        session.status in policy.statuses
        and session.status_since <= before
        and (not policy.agent_types or session.agent_type in policy.agent_types)
        and not set(policy.keep_tags) & set(documents.load(session.tags))
    )


def _candidates(using: str, policy: RetentionPolicy, before: datetime) -> SessionQuerySet:
    # A session that has had its status since then was created before then: this uses the index of creation.
    rows = Session.with_tombstones.using(using).newest_first()
    rows = rows.filter(status__in=policy.statuses, created_at__lte=before, status_since__lte=before)
    rows = rows.exclude(session_id__in=MovedSession.objects.using(using).values("moved_id"))
    if policy.agent_types:
        rows = rows.filter(agent_type__among=policy.agent_types)
    return rows.exclude(tags__has_any=policy.keep_tags) if policy.keep_tags else rows


def _newest_first(rows: SessionQuerySet, size: int) -> Iterator[str]:
    def page_after(last: tuple[datetime, str] | None) -> list[tuple[datetime, str]]:
        left = rows
        if last is not None:
            left = left.filter(created_at__lte=last[0]).exclude(created_at=last[0], session_id__gte=last[1])
        return list(left.values_list("created_at", "session_id")[:size])

    for page in pages(page_after, size):
        yield from (session_id for _, session_id in page)


def _long_logs(using: str, longer_than: int, agent_type: str | None) -> SessionQuerySet:
    rows = Session.objects.using(using).filter(head_seq__gte=models.F("first_seq") + longer_than)
    if agent_type is not None:
        rows = rows.filter(agent_type=inputs.identifier(agent_type, "agent_type"))
    return rows
