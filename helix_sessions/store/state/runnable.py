"""When a session wants to run: `runnable_at`, one fact of its row. No other module sets it.

It is kept in the transaction of its cause, so no sweep has to find a cause again. While a run is
under way it is when the run's owner is taken for gone, so an owner's death needs no other index either.
"""

from datetime import datetime, timedelta

from django.utils import timezone

from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import runner_notices
from helix_sessions.types import TOMBSTONE

STOPPED_STATUSES = ("failed", "interrupted", "paused", TOMBSTONE)
"""A session that entered one of these rests, regardless of earlier requests."""


def ask(work: UnitOfWork, at: datetime | None = None) -> None:
    """Make the locked session runnable at this time, by default now; an earlier time stands."""
    # By the clock, not by the session's time, which a machine whose clock is ahead has set forward.
    now = timezone.now()
    when = now if at is None else at
    before = work.session.runnable_at
    if before is None or when < before:
        _change(work, when, now)
        if when <= now:
            runner_notices.notify_runners(work)


def clear(work: UnitOfWork) -> None:
    """Let the locked session rest, and forget that anybody asked for a run."""
    forget_request(work)
    _set(work, None)


def request(work: UnitOfWork, at: datetime) -> None:
    """A caller asked for a run of the locked session, not before this time. Of two requests the earlier
    stands. It follows the run under way, and the answers that are waited for."""
    session = work.session
    if session.run_id is None and not _waits(work):
        ask(work, at)
    if not session.run_requested:
        work.change(run_requested=True, run_requested_at=at)
    elif session.run_requested_at is not None and at < session.run_requested_at:
        work.change(run_requested_at=at)


def forget_request(work: UnitOfWork) -> None:
    """No run of the locked session is asked for any more."""
    if work.session.run_requested:
        work.change(run_requested=False, run_requested_at=None)


def input_admitted(work: UnitOfWork) -> None:
    """The locked session was given an input that is to be taken up. One that is paused keeps it, one that
    waits takes it with the answers, and a run under way sees it, or leaves it behind when it ends."""
    session = work.session
    if session.status == "paused" or session.run_id is not None:
        return
    if not _waits(work):
        ask(work)
    elif session.status in STOPPED_STATUSES:  # the answers alone would not make it run
        request(work, timezone.now())


def hurry(work: UnitOfWork, priority: int | None) -> None:
    """The locked session is about to be given an input of this priority, by default its own. Work that it has
    already keeps what it has, and at rest it has its own again."""
    session = work.session
    wanted = session.base_priority if priority is None else priority
    at_rest = session.run_id is None and session.runnable_at is None and not session.pending_inputs
    _set_priority(work, wanted if at_rest else max(session.priority, wanted))


def run_began(work: UnitOfWork) -> None:
    """The locked session's run is under way: it takes the request for one, if that is due, and its owner
    has to give a sign from now on."""
    session = work.session
    if session.run_requested_at is None or session.run_requested_at <= timezone.now():
        forget_request(work)
    watch_owner(work)


def watch_owner(work: UnitOfWork) -> None:
    """The owner of the run under way, if there is one, got, renewed or gave back the lease. Without one it
    has so long to take it."""
    session = work.session
    if session.run_id is None:
        return
    if session.lease_owner is not None:
        _set(work, session.lease_expires_at)
    else:
        _set(work, timezone.now() + timedelta(seconds=conf.RUN_OWNER_TIMEOUT))


def lease_renewed(work: UnitOfWork, before: datetime | None) -> None:
    """The lease of the locked session lasts longer or shorter than `before`; so does the time until its owner
    is taken for gone, of one that has claimed it and not begun a run yet as well."""
    session = work.session
    if session.run_id is not None:
        watch_owner(work)
    elif before is not None and session.runnable_at == before:
        _set(work, session.lease_expires_at)


def give_back(work: UnitOfWork, at: datetime | None = None) -> None:
    """The owner of the locked session gave it back: it is looked at again `at` a time, or when it has
    something to do. A run that is still under way is to be taken up by the next."""
    if at is not None:
        _set(work, at)
    elif work.session.run_id is None:
        follow(work)
    else:
        _set(work, timezone.now())


def leave(work: UnitOfWork) -> None:
    """No worker takes up the run under way; only an operator does, by hand."""
    _set(work, None)


def rests_with_inputs(session: SessionRow) -> bool:
    """Whether the session has inputs that were only admitted: those that are to be taken up would have made
    it runnable. It keeps them until a caller wakes it, asks for a run or admits another."""
    if session.run_id is not None or session.runnable_at is not None or session.status in STOPPED_STATUSES:
        return False
    return bool(session.pending_inputs) and not (session.awaiting_client or session.awaiting_children)


def follow(work: UnitOfWork, *, rested: bool = False) -> None:
    """Work out what the locked session is to do, after its run has ended or what it waits for has changed.
    While a run is under way, when its owner is taken for gone stands. `rested`: before the change it rested
    with its inputs, and they are no cause to run after it either."""
    session = work.session
    if session.run_id is not None:
        return
    now, before = timezone.now(), session.runnable_at
    at = _due_at(session, now, rested=rested)
    if at is None and not _waits(work):
        _set_priority(work, session.base_priority)
    if at is None or before is None or before > now or at > now:  # one that is due keeps its place
        _set(work, at)
        if at is not None and (before is None or at < before):
            runner_notices.notify_runners(work)


def due_at(session: SessionRow, now: datetime) -> datetime | None:
    """When a session wants to run whose row does not say so: at once to take up the run under way, or as its
    inputs, answers and requests tell."""
    return now if session.run_id is not None else _due_at(session, now)


def _due_at(session: SessionRow, now: datetime, *, rested: bool = False) -> datetime | None:
    """When a session that has no run wants one. A stopped one does if it is asked to."""
    if session.awaiting_client or session.awaiting_children:
        return None
    if session.status not in STOPPED_STATUSES and _has_work(session, rested=rested):
        return now
    if session.run_requested:
        at: datetime = session.run_requested_at or now
        return at
    return None


def _has_work(session: SessionRow, *, rested: bool) -> bool:
    """Inputs that are to be taken up, or answers that no run has consumed yet."""
    known = vars(session)
    waited_for = (known.get("pending_client_tool_calls"), known.get("suspended_awaiting_children"))
    return bool(known["pending_inputs"] and not rested) or any(map(documents.has_entries, waited_for))


def _waits(work: UnitOfWork) -> bool:
    return bool(work.session.awaiting_client or work.session.awaiting_children)


def _set(work: UnitOfWork, at: datetime | None) -> None:
    if work.session.runnable_at != at:
        _change(work, at, timezone.now())


def _set_priority(work: UnitOfWork, priority: int) -> None:
    if work.session.priority != priority:
        work.change(priority=priority)


def _change(work: UnitOfWork, at: datetime | None, now: datetime) -> None:
    deferred = at is not None and at > now
    work.change(runnable_at=at)
    if work.session.deferred != deferred:
        work.change(deferred=deferred)
