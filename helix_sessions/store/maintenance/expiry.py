"""Sessions whose time is over: their workspace snapshots go, then they are marked as failed."""

import logging
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache

from django.utils import timezone

from helix_sessions.content import documents
from helix_sessions.exceptions import SessionNotFound, StaleState
from helix_sessions.models import Session
from helix_sessions.store.calls import submissions
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.store import Store
from helix_sessions.store.engine.tables import aware, table
from helix_sessions.store.maintenance import failures
from helix_sessions.store.runs import statuses
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
    """Deal with each unfinished session whose `expires_at` is in the past: delete the snapshots of its
    workspace, then set it to `failed` with the reason `session_expired`.

    What fails for one session is counted and logged and stops no other; such a session stays as it is
    and is tried again by the next clean-up. Several may run at once: they share the work. After each
    session it rests `rest` times as long as that one took, so that it does not crowd out those who
    work. `on_progress` is told after each session, and `should_stop` is asked before each.
    """
    size = inputs.integer(page_size, "page_size", minimum=1)
    most = inputs.optional_integer(limit, "limit")
    inputs.share(rest, "rest")
    moment = timezone.now() if now is None else inputs.moment(now, "now")
    expired = Session.objects.using(store.using).filter(expires_at__lt=moment)
    if agent_type is not None:
        expired = expired.filter(agent_type=inputs.identifier(agent_type, "agent_type"))
    tally = _Tally()
    if not dry_run:
        _settle_overdue_calls(store, moment, tally)
    tally.already_terminal = tally.detected = expired.terminal().count()
    for session_id in _overdue(store, moment, agent_type, size, most):
        if should_stop is not None and should_stop():
            break
        tally.detected += 1
        began = time.monotonic()
        try:
            _expire(store, session_id, moment, dry_run, tally)
        except Exception as error:
            tally.errors += 1
            failures.report(_log, f"Session {session_id!r} could not be expired", error)
        if on_progress is not None:
            on_progress(tally.summary())
        time.sleep(rest * (time.monotonic() - began))
    return tally.summary()


def _overdue(
    store: Store, now: datetime, agent_type: str | None, page_size: int, limit: int | None
) -> Iterator[str]:
    """The ids of the sessions in pages, by expiry. Each page is shuffled: of two clean-ups at once, each
    mostly meets sessions the other has not reached."""
    vendor = store._connection.vendor
    sql = overdue_sql(vendor, agent_type is not None)
    encode = table(Session).encoder(vendor, ("expires_at", "expires_at"))
    after, last = _THE_BEGINNING, ""
    left = page_size if limit is None else limit
    while left > 0:
        before_and_after = encode([now, after])
        only = [] if agent_type is None else [agent_type]
        params = [*before_and_after, last, *only, min(page_size, left)]
        page = fetch(store._connection, sql, params)
        if not page:
            return
        after, last = aware(page[-1][0]), page[-1][1]
        left = left if limit is None else left - len(page)
        random.shuffle(page)
        yield from (session_id for _, session_id in page)


def _settle_overdue_calls(store: Store, now: datetime, tally: "_Tally") -> None:
    """Client calls past their deadline are answered first, so that who waits for one can go on."""
    try:
        submissions.settle_expired_calls(store, now)
    except Exception as error:
        tally.errors += 1
        failures.report(_log, "Overdue client calls could not be settled", error)


def _expire(store: Store, session_id: str, now: datetime, dry_run: bool, tally: "_Tally") -> None:
    for _ in range(_ATTEMPTS):
        try:
            session = store._read(session_id, _COLUMNS)
        except SessionNotFound:
            tally.detected -= 1  # deleted meanwhile
            return
        if session.status in TERMINAL_STATUSES:
            tally.already_terminal += 1
            return
        if session.expires_at is None or session.expires_at >= now:
            tally.detected -= 1  # given more time meanwhile
            return
        tally.snapshots_deleted += delete_snapshots_of(session, dry_run=dry_run)
        if dry_run:
            tally.marked += 1
            return
        outcome = statuses.compare_and_set_status(
            store,
            session_id,
            UNFINISHED_STATUSES,
            "failed",
            expected_version=session.version,
            failure_reason="session_expired",
        )
        if isinstance(outcome, CasOk):
            tally.marked += 1
            return
        lost = StaleState(
            expected_version=session.version,
            current_version=outcome.current_version,
            current_status=outcome.current_status,
        )
    raise lost


class _Tally:
    """The counts so far."""

    def __init__(self) -> None:
        self.detected = self.marked = self.already_terminal = self.snapshots_deleted = self.errors = 0

    def summary(self) -> CleanupSummary:
        return CleanupSummary(**vars(self))


@cache
def overdue_sql(vendor: str, of_one_agent_type: bool) -> str:
    """A page of the sessions that have expired and are unfinished. The statuses are part of the text,
    because an engine uses a partial index only when it sees the index's condition; SQLite is told to."""
    hint = " INDEXED BY helix_session_overdue_idx" if vendor == "sqlite" else ""
    unfinished = ", ".join(f"'{status}'" for status in UNFINISHED_STATUSES)
    return (
        f'SELECT "expires_at", "session_id" FROM {table(Session).name}{hint}'  # noqa: S608
        f' WHERE "expires_at" IS NOT NULL AND "status" IN ({unfinished})'
        ' AND "expires_at" < %s AND ("expires_at", "session_id") > (%s, %s)'
        + (' AND "agent_type" = %s' if of_one_agent_type else "")
        + ' ORDER BY "expires_at", "session_id" LIMIT %s'
    )


def delete_snapshots_of(session: SessionRow, *, dry_run: bool = False) -> int:
    """Delete the snapshots of a session's workspace, or count them; how many there were."""
    ref = None if session.workspace_ref is None else documents.load(session.workspace_ref)
    if not isinstance(ref, dict):
        return 0
    workspace = Workspace(session_id=session.session_id, agent_type=session.agent_type, ref=ref)
    return delete_snapshots(workspace, dry_run=dry_run)
