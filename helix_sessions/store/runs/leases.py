"""Leases: which process may drive a session, and a fence against earlier owners."""

import os
from collections.abc import Collection
from copy import copy
from datetime import datetime
from typing import Any, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import LeaseHeld
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.session_rows import SessionRow, check_fence
from helix_sessions.store.engine.store import Store, WrittenHead, session_key
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import runnable
from helix_sessions.store.state.summaries import summaries
from helix_sessions.types import UNSET, Lease, Occupancy, SessionSummary

_LEASE = ("session_id", "fence", "lease_owner", "lease_expires_at", "lease_token")
S = TypeVar("S", bound=Store)

_OCCUPANCY = (
    *("session_id", "status", "run_id", "pending_inputs", "lease_owner", "lease_expires_at"),
    *("awaiting_client", "suspended_awaiting_children", "runnable_at"),
)


def acquire_lease(store: Store, session_id: str, owner: str, ttl: float) -> Lease:
    """Take the right to drive a session for `ttl` seconds, or extend it, if it is this owner's.

    `LeaseHeld` while another owner's is live. A lease that is not an extension has a higher `fence`
    than all before it.
    """
    name = inputs.identifier(owner, "The owner of a lease")
    length = inputs.seconds(ttl, "ttl")
    with store._write(session_id, fenced=False) as work:
        session = work.session
        work.versioned = False
        now = clock(work.connection)
        if session.lease_owner != name:
            if session.lease_owner is not None and session.lease_expires_at > now:
                raise LeaseHeld(session.lease_owner, session.lease_expires_at)
            work.change(fence=session.fence + 1, lease_owner=name, lease_token=None)
        if session.lease_token is None:
            work.change(lease_token=os.urandom(8).hex())
        work.change(lease_expires_at=now + length)
        work.note_activity()
        runnable.watch_owner(work)
    return _lease(session)


def renew_lease(store: Store, lease: Lease, ttl: float) -> Lease:
    """Renew a lease for `ttl` seconds from now; `Fenced` if it is not the session's newest any more."""
    held, length = lease_of(lease), inputs.seconds(ttl, "ttl")

    def renew(work: UnitOfWork) -> None:
        check_fence(work.session, held)
        work.versioned = False
        before = work.session.lease_expires_at
        work.change(lease_expires_at=clock(work.connection) + length)
        work.note_activity()
        runnable.lease_renewed(work, before)

    # Without a lock where that is possible: an owner whose machine stops here would keep the others out.
    work, _ = store._decide(held.session_id, renew, fenced=False)
    return _lease(work.session)


def release_lease(store: Store, lease: Lease) -> None:
    """Release a lease, so that the next owner need not wait. Its holder is fenced from then on."""
    held = lease_of(lease)
    with store._write(held.session_id, fenced=False) as work:
        check_fence(work.session, held)
        work.versioned = False
        work.change(lease_owner=None, lease_token=None, lease_expires_at=None)
        runnable.watch_owner(work)


def get_lease(store: Store, session_id: str) -> Lease | None:
    """The session's newest lease unless it was released, live or expired."""
    row = store._read(session_id, _LEASE)
    return None if row.lease_owner is None else _lease(row)


def is_lease_live(store: Store, lease: Lease) -> bool:
    """Whether a lease is live, by the database's clock."""
    return lease_of(lease).expires_at > clock(store._connection)


def get_occupancy(store: Store, session_id: str) -> Occupancy:
    """Who drives the session, what it has to do, and whether there is anything to wait for."""
    row = store._read(session_id, _OCCUPANCY)
    live = row.lease_expires_at is not None and row.lease_expires_at > clock(store._connection)
    waits = row.awaiting_client or documents.has_entries(row.suspended_awaiting_children)
    stays = waits or row.status in ("interrupted", "paused")
    busy = live or row.run_id is not None or row.runnable_at is not None
    return Occupancy(
        session_id=row.session_id,
        status=row.status,
        run_id=row.run_id,
        pending_inputs=row.pending_inputs,
        owner=row.lease_owner if live else None,
        idle=not (busy or (row.pending_inputs and not stays)),
    )


def list_abandoned(
    store: Store, *, agent_types: Collection[str] | None = None, limit: int = 100
) -> list[SessionSummary]:
    """Sessions with a running run whose owner's lease has expired, the longest ago first."""
    rows = models.Session.objects.using(store.using).abandoned()
    if agent_types is not None:
        rows = rows.filter(agent_type__among=inputs.identifiers(agent_types, "agent_types"))
    if store._owner is not UNSET:
        rows = rows.owned_by(store._owner)
    most = inputs.integer(limit, "limit", minimum=1)
    return summaries(rows.order_by("lease_expires_at")[:most])


def fenced(store: S, lease: Lease) -> S:
    """This store for the holder of a lease: every write to the lease's session is refused with `Fenced`
    once the lease is not the newest. Admissions, submissions and interrupt requests need no lease."""
    fenced_store = copy(store)
    fenced_store._lease, fenced_store._written = lease_of(lease), WrittenHead()
    return fenced_store


def _lease(row: SessionRow) -> Lease:
    return Lease(
        session_id=row.session_id,
        owner=row.lease_owner,
        fence=row.fence,
        expires_at=row.lease_expires_at,
        token=row.lease_token,
    )


def lease_of(value: Any) -> Lease:
    """A lease that a caller holds, checked."""
    lease = inputs.value_of(Lease, value, "A lease")
    session_key(lease.session_id)
    inputs.identifier(lease.owner, "The owner of a lease")
    inputs.integer(lease.fence, "The fence of a lease")
    inputs.moment(lease.expires_at, "expires_at")
    inputs.optional_identifier(lease.token, "The token of a lease")
    return lease


def clock(connection: BaseDatabaseWrapper) -> datetime:
    """The time that all owners go by."""
    return dialect_of(connection).clock(connection)
