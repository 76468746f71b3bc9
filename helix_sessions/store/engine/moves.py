"""Sessions that are in another cell, or on their way: refused here, and their ids are not given again."""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.exceptions import HelixSessionsError, SessionBusy, SessionMoved, SessionNotFound
from helix_sessions.models import MovedOwner, MovedSession, Session
from helix_sessions.models.moves import ARRIVING, LEAVING, LEFT, SETTLING
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.tables import table
from helix_sessions.types import TOMBSTONE, UNSET

_WHERE_TO = f'SELECT "state", "cell", "owner_key" FROM {table(MovedSession).name} WHERE "moved_id" = %s'  # noqa: S608

_HAS_COME = (
    f'SELECT "owner_id" FROM {table(Session).name} WHERE "session_id" = %s AND "status" <> \'{TOMBSTONE}\''  # noqa: S608
    f" AND EXISTS (SELECT 1 FROM {table(MovedOwner).name} WHERE \"state\" IN ('{ARRIVING}', '{SETTLING}'))"
)
"""Whose a session is that is here now, while an owner's sessions come. Otherwise it was created meanwhile."""

NO_TENANT = "\t"
"""What no owner's key is."""

REFUSAL = (
    f'COALESCE((SELECT "state" || \' \' || "cell" FROM {table(MovedSession).name} WHERE "moved_id" = %s),'  # noqa: S608
    f' (SELECT "state" || \' \' || "cell" FROM {table(MovedOwner).name}'
    f' WHERE "tenant" = %s AND "state" <> \'{SETTLING}\'))'
)
"""Why a session cannot be created here, from its id and the key of its owner; null if it can."""


def refuse_moved(connection: BaseDatabaseWrapper, session_id: str, owner: Any = UNSET) -> None:
    """Raise `SessionMoved` for a session that went to another cell, and `SessionBusy` for one that comes from
    there. To a store of one owner those of others do not exist."""
    for state, cell, owner_key in fetch(connection, _WHERE_TO, [session_id]):
        if owner is UNSET or str(owner) == owner_key:
            raise _refusal(state, cell, f"The session {session_id!r}")


def explain_absence(
    connection: BaseDatabaseWrapper, session_id: str, owner: Any, error: SessionNotFound
) -> None:
    """Raise what `refuse_moved` does for a session that was not found, and `SessionBusy` for one that has
    come between the look for it and this one."""
    refuse_moved(connection, session_id, owner)
    if str(error) != f"There is no session {session_id!r}.":
        return  # another one is meant
    for (owner_id,) in fetch(connection, _HAS_COME, [session_id]):
        if owner is UNSET or str(owner) == str(owner_id):
            raise SessionBusy(f"The session {session_id!r} has come here just now. Repeat the call.")


def refuse_new(refusal: str, session_id: str) -> None:
    """Raise the error for what `REFUSAL` has answered."""
    state, _, cell = refusal.partition(" ")
    who = f"The session {session_id!r} cannot be created here. Its owner"
    if state == LEAVING:  # not all that is here is known there yet
        raise SessionBusy(f"{who} is about to move to the database {cell!r}. Repeat the call in a moment.")
    raise _refusal(state, cell, who)


def _refusal(state: str, cell: str, who: str) -> HelixSessionsError:
    if state == LEFT:
        return SessionMoved(f"{who} is in the database {cell!r} now. Repeat the call there.", cell=cell)
    if state == LEAVING:
        return SessionMoved(f"{who} is moving to the database {cell!r}. Repeat the call there.", cell=cell)
    return SessionBusy(f"{who} is on the way here from the database {cell!r}. Repeat the call in a moment.")
