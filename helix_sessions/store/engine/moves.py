"""Sessions that are in another cell, or on their way: refused here, and their ids are not given again."""

from datetime import timedelta
from functools import cache
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from helix_sessions.exceptions import HelixSessionsError, SessionBusy, SessionMoved, SessionNotFound
from helix_sessions.models import MovedOwner, MovedSession, Session
from helix_sessions.models.moves import ARRIVING, LEAVING, LEFT, SETTLING
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.tables import table
from helix_sessions.types import TOMBSTONE, UNSET

_SURELY_OLDER = timedelta(minutes=1)
"""A session of this age was not created since a call has looked for it, even where clocks differ."""

_HERE = "here"

NO_TENANT = "\t"
"""What no owner's key is."""

REFUSAL = (
    f'COALESCE((SELECT "state" || \' \' || "cell" FROM {table(MovedSession).name} WHERE "moved_id" = %s),'  # noqa: S608
    f' (SELECT "state" || \' \' || "cell" FROM {table(MovedOwner).name}'
    f' WHERE "tenant" = %s AND "state" <> \'{SETTLING}\'))'
)
"""Why a session cannot be created here, from its id and the key of its owner; null if it can."""


@cache
def _moved_sql(*, owned: bool) -> str:
    """Where a session has gone, or comes from."""
    mine = ' AND "owner_key" = %s' if owned else ""
    return f'SELECT "state", "cell" FROM {table(MovedSession).name} WHERE "moved_id" = %s{mine}'  # noqa: S608


@cache
def _absence_sql(*, owned: bool) -> str:
    """The same; and whether the session is here now, and was not created here meanwhile."""
    mine = ' AND "owner_id" = %s' if owned else ""
    return (
        f"{_moved_sql(owned=owned)} UNION ALL SELECT '{_HERE}', '' FROM {table(Session).name}"  # noqa: S608
        f' WHERE "session_id" = %s{mine} AND "status" <> \'{TOMBSTONE}\' AND ("created_at" < %s OR EXISTS'
        f" (SELECT 1 FROM {table(MovedOwner).name} WHERE \"state\" IN ('{ARRIVING}', '{SETTLING}')))"
    )


def refuse_moved(connection: BaseDatabaseWrapper, session_id: str, owner: Any = UNSET) -> None:
    """Raise `SessionMoved` for a session that went to another cell, and `SessionBusy` for one that comes from
    there. To a store of one owner those of others do not exist."""
    owned = owner is not UNSET
    params = [session_id, str(owner)] if owned else [session_id]
    for state, cell in fetch(connection, _moved_sql(owned=owned), params):
        raise _refusal(state, cell, f"The session {session_id!r}", session_id)


def explain_absence(connection: BaseDatabaseWrapper, error: SessionNotFound, owner: Any = UNSET) -> None:
    """Raise what `refuse_moved` does for the session that was not found, and `SessionBusy` for one that has
    come since. It takes one query."""
    if type(error) is not SessionNotFound or error.session_id is None:
        return  # this is explained, or there is a session, but not the one that is meant
    key, owned = error.session_id, owner is not UNSET
    encode = table(Session).encoder(dialect_of(connection), ("owner_id", "created_at"))
    owner_id, before = encode([owner if owned else None, timezone.now() - _SURELY_OLDER])
    params = [key, str(owner), key, owner_id, before] if owned else [key, key, before]
    for state, cell in fetch(connection, _absence_sql(owned=owned), params):
        raise _refusal(state, cell, f"The session {key!r}", key)


def refuse_new(refusal: str, session_id: str) -> None:
    """Raise the error for what `REFUSAL` has answered."""
    state, _, cell = refusal.partition(" ")
    who = f"The session {session_id!r} cannot be created here. Its owner"
    if state == LEAVING:  # not all that is here is known there yet
        raise SessionBusy(f"{who} is about to move to the database {cell!r}. Repeat the call in a moment.")
    raise _refusal(state, cell, who, session_id)


def _refusal(state: str, cell: str, who: str, session_id: str) -> HelixSessionsError:
    if state == LEFT:
        message = f"{who} is in the database {cell!r} now. Repeat the call there."
        return SessionMoved(message, cell=cell, session_id=session_id)
    if state == LEAVING:
        message = f"{who} is moving to the database {cell!r}. Repeat the call there."
        return SessionMoved(message, cell=cell, session_id=session_id)
    if state == _HERE:
        return SessionBusy(f"{who} was not here, and is by now. Repeat the call.")
    return SessionBusy(f"{who} is on the way here from the database {cell!r}. Repeat the call in a moment.")
