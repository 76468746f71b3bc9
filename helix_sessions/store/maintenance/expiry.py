"""Expires sessions: deletes their workspace snapshots, then marks them as failed."""

import logging
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone

from helix_sessions.content import documents
from helix_sessions.exceptions import SessionNotFound, StaleState
from helix_sessions.models import Session
from helix_sessions.store.calls import decisions, submissions
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import aware
from helix_sessions.store.maintenance import sql
from helix_sessions.store.maintenance.job import Job, pages
from helix_sessions.store.memory import upkeep as memory_upkeep
from helix_sessions.store.sessions import metadata
from helix_sessions.types import TERMINAL_STATUSES, UNFINISHED_STATUSES, CasOk, CleanupSummary
from helix_sessions.workspaces import Workspace, delete_snapshots

_ATTEMPTS = 3
_THE_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
_COLUMNS = ("session_id", "agent_type", "status", "version", "expires_at", "workspace_ref")

_log = logging.getLogger("helix_sessions.cleanup")


def expired_session_cleanup(
    store: Store,
    *,
    page_size: int = 200,
    limit: int | None = None,
    agent_type: str | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
    rest: float = 1.0,
    on_progress: Callable[[CleanupSummary], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> CleanupSummary:
    """Expire each unfinished session whose `expires_at` is in the past: delete the snapshots of its
    workspace, then set it to `failed` with the reason `session_expired`. Expired memories are
    deleted, unless an agent type is chosen.

    An error in one session is counted and logged and stops no other; the session stays as it is, and the
    next clean-up retries it. Several clean-ups may run at once: they share the work. After each session
    the clean-up sleeps `rest` times as long as that one took, so that it does not crowd out other work.
    `on_progress` is called after each session, and `should_stop` before each.
    """
    size = inputs.integer(page_size, "page_size", minimum=1)
    most = inputs.optional_integer(limit, "limit")
    inputs.share(rest, "rest")
    moment = timezone.now() if now is None else inputs.moment(now, "now")
    expired = Session.objects.using(store.using).filter(expires_at__lt=moment)
    if agent_type is not None:
        expired = expired.filter(agent_type=inputs.identifier(agent_type, "agent_type"))
    job = Job(
        CleanupSummary(), _log, dry_run=dry_run, rest=rest, on_progress=on_progress, should_stop=should_stop
    )
    if not dry_run:
        # First, so that a session that waits for one of these calls can go on.
        with job.attempt("Overdue client calls could not be settled"):
            submissions.settle_expired_calls(store, moment)
        if agent_type is None:
            with job.attempt("Expired memories could not be removed"):
                memory_upkeep.remove_expired(store.using, moment)
    finished = expired.terminal().count()
    job.count(detected=finished, already_terminal=finished)
    for session_id in job.over(_overdue(store, moment, agent_type, size, most)):
        job.count(detected=1)
        with job.attempt(f"Session {session_id!r} could not be expired"):
            _expire(store, session_id, moment, job)
    return job.summary


def expire_now(store: Store, session_id: str) -> int:
    """Expire one unfinished session at once, as the clean-up would: delete the snapshots of its workspace,
    then set it to `failed` with the reason `session_expired`. How many snapshots were deleted.

    Its `expires_at` is set first, so that the next clean-up goes on with a session whose snapshots could not
    be deleted. An ended session stays as it is.
    """
    now = timezone.now()
    metadata.set_expiry(store, session_id, now)
    job = Job(CleanupSummary(), _log, rest=0)
    _expire(store, session_id, now + timedelta(microseconds=1), job)
    return job.summary.snapshots_deleted


def _overdue(
    store: Store, now: datetime, agent_type: str | None, page_size: int, limit: int | None
) -> Iterator[str]:
    """The ids of the sessions, by expiry. Each page is shuffled, so that two clean-ups at once rarely
    meet."""
    dialect = store._dialect
    query = sql.overdue(dialect, agent_type is not None)
    only = [] if agent_type is None else [agent_type]
    size = page_size if limit is None else min(page_size, limit)

    def page_after(last: tuple[Any, str] | None) -> list[tuple[Any, str]]:
        expires_at, session_id = (_THE_BEGINNING, "") if last is None else (aware(last[0]), last[1])
        params = [*dialect.parameters([now, expires_at]), session_id, *only, size]
        return fetch(store._connection, query, params)

    if limit == 0:
        return
    left = limit
    for page in pages(page_after, size):
        ids = [session_id for _, session_id in page][:left]
        random.shuffle(ids)
        yield from ids
        left = None if left is None else left - len(ids)
        if left == 0:
            return


def _expire(store: Store, session_id: str, now: datetime, job: Job[CleanupSummary]) -> None:
    for _ in range(_ATTEMPTS):
        try:
            session = store._read(session_id, _COLUMNS)
        except SessionNotFound:
            job.count(detected=-1)  # deleted meanwhile
            return
        if session.status in TERMINAL_STATUSES:
            job.count(already_terminal=1)
            return
        if session.expires_at is None or session.expires_at >= now:
            job.count(detected=-1)  # its expiry was changed meanwhile
            return
        job.count(snapshots_deleted=delete_snapshots_of(session, dry_run=job.dry_run))
        if job.dry_run:
            job.count(marked=1)
            return
        outcome = decisions.compare_and_set_status(
            store,
            session_id,
            UNFINISHED_STATUSES,
            "failed",
            expected_version=session.version,
            failure_reason="session_expired",
        )
        if isinstance(outcome, CasOk):
            job.count(marked=1)
            return
        lost = StaleState(
            expected_version=session.version,
            current_version=outcome.current_version,
            current_status=outcome.current_status,
        )
    raise lost


def delete_snapshots_of(session: SessionRow, *, dry_run: bool = False) -> int:
    """Delete the snapshots of a session's workspace, or in a dry run count them; return how many."""
    ref = None if session.workspace_ref is None else documents.load(session.workspace_ref)
    if not isinstance(ref, dict):
        return 0
    workspace = Workspace(session_id=session.session_id, agent_type=session.agent_type, ref=ref)
    return delete_snapshots(workspace, dry_run=dry_run)
