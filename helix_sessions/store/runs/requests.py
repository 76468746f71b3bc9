"""Requests for a run: durable, and twice is one run. And the sessions that want one."""

from collections.abc import Collection
from datetime import datetime

from django.utils import timezone

from helix_sessions import models
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.session_columns import ALL_COLUMNS
from helix_sessions.store.engine.store import Store
from helix_sessions.store.state import runnable, runner_notices, snapshots, state_rows
from helix_sessions.store.state.summaries import summaries
from helix_sessions.types import UNSET, SessionState, SessionSummary

_REQUEST = ("runnable_at", "run_requested", "run_requested_at", "attempts", "retry_attempt")


def request_run(
    store: Store, session_id: str, *, at: datetime | None = None, expected_version: int | None = None
) -> SessionState:
    """Ask for a run of at least one turn, now or not before `at`, in any status of the session.

    A worker takes it up. While a run is under way, another follows it; while the session waits for
    answers, it follows them. A retry that waits is brought forward and keeps its count. Asking again
    changes nothing.
    """
    when = inputs.optional_moment(at, "at")
    return _request(store, session_id, when, expected_version, anew=False)


def retry_run(store: Store, session_id: str, *, expected_version: int | None = None) -> SessionState:
    """Run the turn that failed or was stopped again, without a new message: `request_run`, with the
    counts of attempts begun anew."""
    return _request(store, session_id, None, expected_version, anew=True)


def _request(
    store: Store, session_id: str, at: datetime | None, expected_version: int | None, *, anew: bool
) -> SessionState:
    with store._write(session_id, expected_version, columns=ALL_COLUMNS, fenced=False) as work:
        session = work.session
        now = timezone.now()
        when = now if at is None else max(at, now)
        before = [getattr(session, name) for name in _REQUEST]
        if session.waits_for_retry:
            runnable.ask(work, when)
        else:
            runnable.request(work, when)
        if anew and (session.attempts or session.retry_attempt):
            work.change(attempts=0, retry_attempt=1 if session.waits_for_retry else 0)
        if before != [getattr(session, name) for name in _REQUEST]:
            data = {"at": None if at is None else when.isoformat(), "retry": anew or None}
            work.event("run_requested", {name: value for name, value in data.items() if value is not None})
        elif session.runnable_at is not None and session.runnable_at <= now:
            runner_notices.notify_runners_after_commit(
                work.connection, session.session_id, session.agent_type
            )
        custom = snapshots.read(work.connection, session.session_id, session.state_base, session.state_number)
    return state_rows.state_of(work.session, custom)


def list_runnable(
    store: Store, *, agent_types: Collection[str] | None = None, limit: int = 100
) -> list[SessionSummary]:
    """Sessions that a driver has something to do for and that have none, the longest waiting first."""
    rows = models.Session.objects.using(store.using).runnable()
    if agent_types is not None:
        rows = rows.filter(agent_type__among=inputs.identifiers(agent_types, "agent_types"))
    if store._owner is not UNSET:
        rows = rows.owned_by(store._owner)
    return summaries(rows[: inputs.integer(limit, "limit", minimum=1)])
