"""What every noun of the store shares."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.exceptions import Fenced, SessionExists, SessionNotFound
from helix_sessions.store import inputs, unit
from helix_sessions.store.unit import LIGHT_COLUMNS, SessionRow, Work
from helix_sessions.types import TOMBSTONE, UNSET, Lease

T = TypeVar("T")


class StoreBase:
    """The alias a store works on, and its two ways to a session: reading, and writing under the lock.

    `owned_by` (a user or its key) makes a store that knows the sessions of one owner only: any other id
    is unknown to it, and what it creates belongs to that owner.
    """

    def __init__(self, using: str = DEFAULT_DB_ALIAS, *, owned_by: Any = UNSET) -> None:
        self.using = using
        self._owner = owned_by if owned_by is UNSET else inputs.required_owner_key(owned_by)
        self._lease: Lease | None = None

    @property
    def _connection(self) -> BaseDatabaseWrapper:
        return connections[self.using]

    def _read(
        self, session_id: str, columns: tuple[str, ...] = LIGHT_COLUMNS, *, tombstones: bool = False
    ) -> SessionRow:
        key = session_key(session_id)
        return unit.read_row(self._connection, key, columns, self._owner, tombstones=tombstones)

    def _write(
        self,
        session_id: str,
        expected_version: Any = None,
        *,
        columns: tuple[str, ...] = LIGHT_COLUMNS,
        tombstones: bool = False,
        fenced: bool = True,
    ) -> AbstractContextManager[Work]:
        return unit.write(
            self.using,
            session_key(session_id),
            inputs.expected_version(expected_version),
            columns=columns,
            owner=self._owner,
            tombstones=tombstones,
            lease=self._lease if fenced else None,
        )

    def _decide(
        self,
        session_id: str,
        decision: Callable[[Work], T],
        expected_version: Any = None,
        *,
        fenced: bool = True,
        unread: bool = False,
    ) -> tuple[Work, T]:
        return unit.decide(
            self.using,
            session_key(session_id),
            decision,
            inputs.expected_version(expected_version),
            owner=self._owner,
            lease=self._lease if fenced else None,
            unread=unread,
        )

    def _refuse_to_recreate(self, session_id: str) -> None:
        """Whoever drove a session that is gone must not bring it back."""
        if self._lease is not None and self._lease.session_id == session_id:
            raise Fenced(f"The session {session_id!r} is driven under a lease, and cannot be created.")

    def _refuse_if_taken(self, session_id: str) -> None:
        """An id that another owner's session has, or a tombstone, will never be this store's, however often
        it is tried."""
        columns = ("owner_id", "status")
        try:
            row = unit.read_row(self._connection, session_id, columns, tombstones=True)
        except SessionNotFound:
            return
        unit.check_owner(session_id, row, self._owner)
        if row.status == TOMBSTONE:
            raise SessionExists(f"There was a session {session_id!r}, which was deleted.")


def session_key(session_id: Any) -> str:
    return inputs.identifier(session_id, "The session id")
