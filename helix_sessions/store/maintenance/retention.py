"""What a retention policy lets go: whole sessions, and the older part of long event logs."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput, SessionNotFound
from helix_sessions.models import Event, Message, Session, SubSessionRef
from helix_sessions.models.sessions import SessionQuerySet
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_rows import SessionRow, lock_row
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.transactions import locking_transaction
from helix_sessions.store.maintenance import archives, failures
from helix_sessions.store.maintenance.expiry import delete_snapshots_of
from helix_sessions.store.sessions.delete import remove
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
    """Delete the sessions a policy lets go, each in a transaction of its own.

    A session is kept as long as there is a branch of it, or a sub-session that is kept; both are looked
    at under its lock, so that no branch loses its source. The newest go first, so sub-sessions and
    branches go before what they come from. `limit` counts deletions.
    """
    _check(policy)
    inputs.integer(page_size, "page_size", minimum=1)
    inputs.optional_integer(limit, "limit")
    before = timezone.now() - policy.terminal_for
    tally = _Tally(store.using, dry_run)
    for session_id in _newest_first(_candidates(store.using, policy, before), page_size):
        if tally.sessions == limit or (should_stop is not None and should_stop()):
            break
        try:
            _prune(store, session_id, policy, before, tally)
        except SessionNotFound:
            continue
        except Exception as error:
            tally.errors += 1
            failures.report(_log, f"Session {session_id!r} could not be pruned", error)
        if on_progress is not None:
            on_progress(tally.summary())
    return replace(
        tally.summary(),
        estimated_bytes=_estimated_bytes(store._connection, tally.sessions, tally.messages, tally.events),
    )


def _prune(store: Store, session_id: str, policy: RetentionPolicy, before: datetime, tally: "_Tally") -> None:
    session = store._read(session_id, _COLUMNS, tombstones=True)
    if not _fits(session, policy, before) or tally.keeps(session_id):
        return
    if not tally.dry_run:
        delete_snapshots_of(session)
        with locking_transaction(store.using) as connection:
            session = lock_row(connection, session_id, _COLUMNS, tombstones=True)
            if not _fits(session, policy, before) or tally.keeps(session_id):
                return
            remove(connection, session_id)
    tally.gone(session)


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
    """Archive all but the last `keep` events of each session whose log holds more than `longer_than`."""
    inputs.integer(keep, "keep")
    if inputs.integer(longer_than, "longer_than", minimum=1) < keep:
        raise InvalidInput("longer_than must not be less than keep.")
    archive_storage()
    sessions = events = files = stored = errors = 0
    for session_id in _long_logs(store.using, longer_than, agent_type, page_size):
        if should_stop is not None and should_stop():
            break
        try:
            done = archives.archive_events(store, session_id, keep=keep, dry_run=dry_run)
        except SessionNotFound:
            continue
        except Exception as error:
            errors += 1
            failures.report(_log, f"The log of session {session_id!r} could not be archived", error)
        else:
            sessions, events = sessions + done.sessions, events + done.events
            files, stored = files + done.files, stored + done.stored_bytes
        if on_progress is not None:
            on_progress(_archived(sessions, events, files, stored, errors))
    return _archived(sessions, events, files, stored, errors)


class _Tally:
    """The counts so far, and in a dry run the ids that would be gone."""

    def __init__(self, using: str, dry_run: bool) -> None:
        self.using = using
        self.dry_run = dry_run
        self.sessions = self.messages = self.events = self.errors = 0
        self.kept_for_forks = self.kept_for_children = 0
        self._gone: set[str] = set()

    def gone(self, session: SessionRow) -> None:
        self.sessions += 1
        self.messages += session.message_count
        self.events += session.head_seq - session.first_seq + 1
        if self.dry_run:
            self._gone.add(session.session_id)

    def keeps(self, session_id: str) -> bool:
        """Whether other sessions need this one."""
        rows = Session.objects.using(self.using)
        refs = SubSessionRef.objects.using(self.using).filter(session_id=session_id, location="local")
        referred = rows.filter(session_id__in=refs.values("sub_session_id")).exclude(session_id=session_id)
        if self._any(rows.children_of(session_id)) or self._any(referred):
            self.kept_for_children += 1
            return True
        if self._any(rows.filter(forked_from_session_id=session_id)):
            self.kept_for_forks += 1
            return True
        return False

    def _any(self, rows: SessionQuerySet) -> bool:
        if not self.dry_run:
            return rows.exists()
        return any(key not in self._gone for key in rows.values_list("session_id", flat=True))

    def summary(self) -> PruneSummary:
        return PruneSummary(
            sessions=self.sessions,
            messages=self.messages,
            events=self.events,
            kept_for_forks=self.kept_for_forks,
            kept_for_children=self.kept_for_children,
            errors=self.errors,
        )


def _estimated_bytes(
    connection: BaseDatabaseWrapper, sessions: int, messages: int, events: int
) -> int | None:
    """What so many rows take, by the average of their tables; `None` where that is not known."""
    if connection.vendor != "postgresql":
        return None
    counts: list[tuple[type[models.Model], int]] = [(Session, sessions), (Message, messages), (Event, events)]
    return round(sum(count * _row_size(connection, table(model).name) for model, count in counts))


def _row_size(connection: BaseDatabaseWrapper, name: str) -> float:
    sql = (
        "SELECT pg_total_relation_size(c.oid) / GREATEST(c.reltuples, 1)"
        " FROM pg_class c WHERE c.oid = to_regclass(%s)"
    )
    return float(fetch(connection, sql, [name])[0][0])


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
    """Whether the policy lets this session go."""
    return (
        session.status in policy.statuses
        and session.status_since <= before
        and (not policy.agent_types or session.agent_type in policy.agent_types)
        and not set(policy.keep_tags) & set(documents.load(session.tags))
    )


def _candidates(using: str, policy: RetentionPolicy, before: datetime) -> SessionQuerySet:
    # What has had its status since then was created before then: the index of creation narrows it.
    rows = Session.with_tombstones.using(using).newest_first()
    rows = rows.filter(status__in=policy.statuses, created_at__lte=before, status_since__lte=before)
    if policy.agent_types:
        rows = rows.filter(agent_type__among=policy.agent_types)
    return rows.exclude(tags__has_any=policy.keep_tags) if policy.keep_tags else rows


def _newest_first(rows: SessionQuerySet, size: int) -> Iterator[str]:
    while page := list(rows.values_list("created_at", "session_id")[:size]):
        yield from (session_id for _, session_id in page)
        created_at, session_id = page[-1]
        rows = rows.filter(created_at__lte=created_at).exclude(
            created_at=created_at, session_id__gte=session_id
        )


def _long_logs(using: str, longer_than: int, agent_type: str | None, size: int) -> Iterator[str]:
    """The ids of the sessions with long logs, in one pass over the table by id."""
    rows = Session.objects.using(using).order_by("session_id")
    rows = rows.filter(head_seq__gte=models.F("first_seq") + longer_than)
    if agent_type is not None:
        rows = rows.filter(agent_type=inputs.identifier(agent_type, "agent_type"))
    last = ""
    while page := list(rows.filter(session_id__gt=last).values_list("session_id", flat=True)[:size]):
        yield from page
        last = page[-1]


def _archived(sessions: int, events: int, files: int, stored: int, errors: int) -> ArchiveSummary:
    return ArchiveSummary(sessions=sessions, events=events, files=files, stored_bytes=stored, errors=errors)
