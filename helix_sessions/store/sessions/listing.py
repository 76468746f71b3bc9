"""List sessions."""

from datetime import datetime
from typing import Any

from helix_sessions.models import MovedSession, Session
from helix_sessions.models.session_querysets import SessionQuerySet
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import let_go_if_broken
from helix_sessions.store.engine.session_rows import GONE
from helix_sessions.store.engine.store import Store
from helix_sessions.store.state.summaries import page_of_summaries
from helix_sessions.types import (
    SESSION_STATUSES,
    TOMBSTONE,
    UNSET,
    Page,
    SessionStatus,
    SessionSummary,
)


def query_sessions(store: Store) -> SessionQuerySet:
    """The sessions this store knows, newest first; to be narrowed, and read with `page_of_sessions`."""
    return _query(store)


def _query(store: Store, *, tombstones: bool = False) -> SessionQuerySet:
    let_go_if_broken(store._connection)
    sessions = Session.with_tombstones if tombstones else Session.objects
    rows = sessions.using(store.using).newest_first()
    return rows if store._owner is UNSET else rows.owned_by(store._owner)


def page_of_sessions(
    store: Store, rows: SessionQuerySet, *, limit: int = 50, cursor: str | None = None
) -> Page[SessionSummary]:
    """A page of what `query_sessions` was narrowed to."""
    return page_of_summaries(rows, limit=limit, cursor=cursor)


def list_sessions(
    store: Store,
    *,
    status: SessionStatus | None = None,
    agent_type: str | None = None,
    user_id: str | None = None,
    owner: Any = None,
    tag: str | None = None,
    parent_session_id: str | None = None,
    updated_after: datetime | None = None,
    expires_before: datetime | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[SessionSummary]:
    """Sessions, newest first, without their documents."""
    rows = _query(store, tombstones=status is GONE)
    if status is GONE:
        hidden = MovedSession.objects.using(store.using).values("moved_id")
        rows = rows.filter(status=TOMBSTONE).exclude(session_id__in=hidden)
    elif status is not None:
        rows = rows.filter(status=inputs.choice(status, SESSION_STATUSES, "The status"))
    if agent_type is not None:
        rows = rows.filter(agent_type=inputs.identifier(agent_type, "agent_type"))
    if user_id is not None:
        rows = rows.filter(user_id=inputs.identifier(user_id, "user_id"))
    if owner is not None:
        rows = rows.owned_by(inputs.owner_key(owner))
    if tag is not None:
        rows = rows.tagged(inputs.identifier(tag, "A tag"))
    if parent_session_id is not None:
        rows = rows.children_of(inputs.identifier(parent_session_id, "parent_session_id"))
    if updated_after is not None:
        rows = rows.filter(updated_at__gt=inputs.moment(updated_after, "updated_after"))
    if expires_before is not None:
        rows = rows.filter(expires_at__lt=inputs.moment(expires_before, "expires_before"))
    return page_of_summaries(rows, limit=limit, cursor=cursor)
